"""The experts of a mixture: loads, parts of the text, sums, agreement and patterns."""

from __future__ import annotations

from fastapi import APIRouter, HTTPException, Request
from fastapi.responses import HTMLResponse

from ffmem.explorer.context import TheStudy
from ffmem.explorer.queries.expert_use import ExpertsView, experts_view, has_experts
from ffmem.explorer.templating import page

LINK = ("Experts", "/experts")
is_for = has_experts
router = APIRouter()


@router.get("/experts", include_in_schema=False)
def experts_page(request: Request, explored: TheStudy) -> HTMLResponse:
    """Every expert in a table, under the figures of all."""
    return page(request, "experts.html.j2", view=view_of(explored))


@router.get("/api/experts", tags=["study"])
def experts_data(explored: TheStudy) -> ExpertsView:
    """Loads, specialisation, output and agreement of every expert, and patterns per memory."""
    return view_of(explored)


def view_of(explored: TheStudy) -> ExpertsView:
    """What there is to say; refuses a study without experts."""
    if not has_experts(explored):
        raise HTTPException(404, "the model of this study has no experts")
    return experts_view(explored)
