"""The experts of a mixture: loads, parts of the text, sums, agreement and patterns."""

from __future__ import annotations

from fastapi import APIRouter, HTTPException, Request
from fastapi.responses import HTMLResponse

from ffmem.explorer.answers import Answer
from ffmem.explorer.context import TheStudy
from ffmem.explorer.queries.experts import ExpertsView, experts_view, has_experts
from ffmem.explorer.templating import page

LINK = ("Experts", "/experts")
router = APIRouter()


@router.get("/experts", include_in_schema=False)
def experts_page(request: Request, context: TheStudy) -> HTMLResponse:
    """Every expert in a table, under the figures of all."""
    return page(request, "experts.html.j2", view=_experts_of_study(context))


@router.get("/api/experts", tags=["study"], response_model=ExpertsView)
def experts_data(context: TheStudy) -> Answer:
    """Loads, specialisation, output and agreement of every expert, and patterns per memory."""
    return Answer(_experts_of_study(context))


def _experts_of_study(context: TheStudy) -> ExpertsView:
    """What there is to say; refuses a study without experts."""
    if not has_experts(context):
        raise HTTPException(404, "the model of this study has no experts")
    return experts_view(context)
