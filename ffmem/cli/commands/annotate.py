"""`ffmem annotate`: sheets for people, their answers back, how far they agree and predict."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import click

from ffmem.cli.judgements import print_agreement, print_cases, print_held_out
from ffmem.cli.options import (
    ModelOptions,
    database_option,
    endpoint_options,
    key_sample_options,
    model_options,
)
from ffmem.cli.output import save_numbers, say
from ffmem.cli.parameters import ANY, LOCATION, SOME
from ffmem.cli.study_access import open_database, writes_study
from ffmem.errors import AnnotatorError, StoreError, shorten
from ffmem.files.whole_files import write_text
from ffmem.locations import file_text
from ffmem.store.people.annotators import RULES

if TYPE_CHECKING:
    from ffmem.analyses.last_layer.record import Judgement
    from ffmem.annotations.chat import CachedChat, Usage
    from ffmem.annotations.database import Annotations
    from ffmem.annotations.llm_annotator import LlmAnswer
    from ffmem.annotations.sheets import CaseAnswer, CaseSheet


@click.group()
def annotate() -> None:
    """Let people, rules or a language model name the patterns that the triggers of keys share.

    Also lets people judge what the last layer does (`ffmem annotate cases`).
    """


@annotate.command()
@click.argument("folder", type=LOCATION)
@click.argument("out", type=LOCATION)
@key_sample_options
@database_option
@writes_study
def sheets(
    folder: Path, out: Path, keys: int, controls: int, seed: int, database: str | None
) -> None:
    r"""Write one Markdown sheet per key of the scan in FOLDER into the folder OUT.

    Control keys, made of random prefixes, are mixed in under names that do not
    reveal them. A sheet that is already in OUT is left unchanged.

    \b
    Example:
        ffmem annotate sheets out/scan out/sheets --keys 2
    """
    from ffmem.annotations.markdown import sheet_text
    from ffmem.annotations.sheets import draw_sheets
    from ffmem.store.scan_store import ScanStore

    annotations = open_database(folder, database)
    drawn = annotations.add_and_get_sheets(
        draw_sheets(ScanStore.open(folder), keys, controls, seed)
    )
    new = [sheet for sheet in drawn if not (out / f"{sheet.name}.md").exists()]
    for sheet in new:
        write_text(out / f"{sheet.name}.md", sheet_text(sheet))
    blind = sum(sheet.key is None for sheet in new)
    say(
        f"{len(new)} sheets ({len(new) - blind} keys and {blind} control keys, whose names do not "
        f"tell which is which) -> {out}; fill them in, then: "
        f"ffmem annotate import {folder} {out} --annotator NAME"
    )


@annotate.command(name="import")
@click.argument("folder", type=LOCATION)
@click.argument("files", nargs=-1, required=True, type=LOCATION)
@click.option("--annotator", required=True, help="Whose answers these are.")
@click.option("--skip-empty", is_flag=True, help="Skip sheets that nobody has filled in.")
@database_option
@writes_study
def import_sheets(
    folder: Path,
    files: tuple[Path, ...],
    annotator: str,
    skip_empty: bool,
    database: str | None,
) -> None:
    r"""Import filled sheets (files, or folders of them): all of them or none.

    Sheets of keys and sheets of cases may be mixed. A sheet that was changed since its last
    import is saved as a new answer, and the old one is kept.

    \b
    Example:
        ffmem annotate import out/scan out/sheets --annotator mara
    """
    from ffmem.annotations.answer_rules import check_name
    from ffmem.annotations.markdown import is_blank_sheet, is_case_sheet, parse_sheet

    annotator = check_name(annotator)
    annotations = open_database(folder, database)
    known = {sheet.name: sheet for sheet in annotations.sheets()}
    texts = {str(path): file_text(path, str(path), StoreError) for path in _sheet_files(files)}
    of_cases = {path: text for path, text in texts.items() if is_case_sheet(text)}
    judged = _parse_case_files(annotations, of_cases, skip_empty)
    filled = [
        parse_sheet(text, path, known)
        for path, text in texts.items()
        if path not in of_cases and not (skip_empty and is_blank_sheet(text))
    ]
    new = sum(annotations.answer(sheet, annotator, answers) for sheet, answers in filled)
    new += sum(annotations.judge(sheet, annotator, cases) for sheet, cases in judged)
    count = len(filled) + len(judged)
    say(f"{count} sheets by {annotator}: {new} new answers, the rest known")


def _sheet_files(paths: tuple[Path, ...]) -> list[Path]:
    """The files themselves, and the Markdown files of folders; refuses a pipe or a device."""
    found = [
        file for path in paths for file in (sorted(path.glob("*.md")) if path.is_dir() else [path])
    ]
    for file in found:
        if file.exists() and not file.is_file():
            raise StoreError(f"{shorten(str(file))} is not a file; name sheets or a folder of them")
    return found


@annotate.command()
@click.argument("folder", type=LOCATION)
@database_option
@writes_study
def rules(folder: Path, database: str | None) -> None:
    r"""Let the rule annotator answer every sheet that was drawn from the scan in FOLDER.

    \b
    Example:
        ffmem annotate rules out/scan
    """
    from ffmem.annotations.agreement import answers_by_rule
    from ffmem.store.scan_store import ScanStore

    annotations, store = open_database(folder, database), ScanStore.open(folder)
    answers = answers_by_rule(store, annotations.sheets())
    new = sum(annotations.answer(sheet, RULES, patterns) for sheet, patterns in answers)
    say(f"{new} new answers by rules")


@annotate.command()
@click.argument("folder", type=LOCATION)
@click.option(
    "-n", "--count", type=ANY, default=20, show_default=True, help="Disagreements listed."
)
@database_option
@writes_study
def agreement(folder: Path, count: int, database: str | None) -> None:
    r"""Report how far annotators agree and how often they see patterns on control keys.

    Reports the same for cases of the last layer, if any were judged. Writes
    analyses/agreement.json, and analyses/case-agreement.json, into FOLDER.

    \b
    Example:
        ffmem annotate agreement out/scan
    """
    from ffmem.annotations.agreement import agreement as compared

    annotations = open_database(folder, database)
    answers, case_answers = annotations.answers(), _case_answers_of(folder, annotations)
    if answers or not case_answers:
        result = compared(answers)
        print_agreement(result, count)
        say(f"-> {save_numbers(folder, 'agreement', result)}")
    if case_answers:
        from ffmem.annotations.agreement import case_agreement

        judged = case_agreement(case_answers)
        print_cases(judged, count)
        say(f"-> {save_numbers(folder, 'case-agreement', judged)}")


@annotate.command()
@click.argument("folder", type=LOCATION)
@click.argument("out", type=LOCATION)
@click.option(
    "--controls", type=ANY, default=50, show_default=True, help="Shuffled pairs mixed in, at most."
)
@database_option
@writes_study
def cases(folder: Path, out: Path, controls: int, database: str | None) -> None:
    r"""Write sheets of cases where the last layer changes the prediction into the folder OUT.

    The cases are those of `ffmem analyse FOLDER --only last-layer`; a person says of each whether
    the old and the new token are related or distant. Controls, where the old token is another
    prefix's, are mixed in and not marked. The rule's own judgements are saved as `rules`. A sheet
    that is already in OUT is left unchanged.

    \b
    Example:
        ffmem annotate cases out/scan out/cases
    """
    from ffmem.analyses.study import open_study
    from ffmem.annotations.markdown import case_sheet_text
    from ffmem.annotations.sheets import draw_case_sheets
    from ffmem.errors import StoreError

    annotations, study = open_database(folder, database), open_study(folder)
    result = study.result("last-layer")
    drawn = draw_case_sheets(result, study.store.manifest.key.digest, controls)
    if not drawn:
        raise StoreError(
            f"in the sample of {folder} the last layer never changes the token to a third one, so "
            "there is nothing to judge; analyse a larger --sample"
        )
    annotations.add_case_sheets([sheet for sheet, _ in drawn])
    for sheet, judged in drawn:
        annotations.judge(sheet, RULES, judged)
    new = [sheet for sheet, _ in drawn if not (out / f"cases-{sheet.name}.md").exists()]
    for sheet in new:
        write_text(out / f"cases-{sheet.name}.md", case_sheet_text(sheet))
    say(
        f"{len(new)} sheets of {sum(len(sheet.cases) for sheet in new)} cases -> {out}; judge "
        f"them, then: ffmem annotate import {folder} {out} --annotator NAME"
    )


def _parse_case_files(
    annotations: Annotations, texts: Mapping[str, str], skip_empty: bool
) -> list[tuple[CaseSheet, list[Judgement]]]:
    """The sheets of cases among files, by path, with what is said on them."""
    from ffmem.annotations.markdown import is_blank_case_sheet, parse_case_sheet

    known = {sheet.name: sheet for sheet in annotations.case_sheets()}
    return [
        parse_case_sheet(text, path, known)
        for path, text in texts.items()
        if not (skip_empty and is_blank_case_sheet(text))
    ]


def _case_answers_of(folder: Path, annotations: Annotations) -> list[CaseAnswer]:
    """The judgements of this scan's cases."""
    from ffmem.store.scan_store import ScanStore

    return annotations.case_answers(ScanStore.open(folder).manifest.key.digest)


@annotate.command()
@click.argument("folder", type=LOCATION)
@database_option
@writes_study
def score(folder: Path, database: str | None) -> None:
    r"""Report how well each annotator's patterns predict held-out triggers (detection score).

    Patterns are learnt from the prefixes that the annotator ticked, in the same way for people,
    language models and rules. Writes analyses/annotators.json into FOLDER.

    \b
    Example:
        ffmem annotate score out/scan
    """
    from ffmem.annotations.agreement import score_annotators
    from ffmem.errors import StoreError
    from ffmem.store.scan_store import ScanStore

    answers, store = open_database(folder, database).answers(), ScanStore.open(folder)
    if not answers:
        raise StoreError(
            f"nobody has answered a sheet of {folder} yet; begin with `ffmem annotate sheets`"
        )
    result = score_annotators(store, answers)
    for who, rows in result.annotators.items():
        say(who)
        print_held_out(rows)
    say(f"-> {save_numbers(folder, 'annotators', result)}")


@annotate.command()
@click.argument("folder", type=LOCATION)
@click.option(
    "--llm",
    "name",
    required=True,
    help="The model that annotates: its name at the endpoint, or without an endpoint a model on "
    "this machine, named as for `ffmem scan`.",
)
@endpoint_options
@key_sample_options
@click.option("--at-once", type=SOME, default=1, show_default=True, help="Requests at a time.")
@click.option(
    "--longest", type=SOME, default=1000, show_default=True, help="Longest reply, in tokens."
)
@click.option("--dry-run", is_flag=True, help="Print what it will cost, and stop.")
@database_option
@model_options
@writes_study
def llm(  # noqa: PLR0913 - one parameter per option
    folder: Path,
    name: str,
    endpoint: str | None,
    key_from: str,
    keys: int,
    controls: int,
    seed: int,
    at_once: int,
    longest: int,
    dry_run: bool,
    database: str | None,
    **options: Unpack[ModelOptions],
) -> None:
    r"""Let a language model annotate keys of the scan in FOLDER, including control keys.

    The keys are those that `ffmem annotate sheets` draws with the same options. The expected cost
    is printed first. Replies are checked, sent back to be corrected, and cached, so that no
    question is asked twice and the same command resumes a stopped run.

    \b
    Examples:
        ffmem annotate llm out/scan --llm smollm2 --keys 1
        ffmem annotate llm out/scan --llm NAME --endpoint https://HOST/v1
    """
    from ffmem.annotations.answer_rules import check_name
    from ffmem.annotations.chat import open_chat
    from ffmem.annotations.llm_annotator import answers_by_llm, expected_usage
    from ffmem.annotations.sheets import draw_sheets
    from ffmem.store.scan_store import ScanStore

    annotator = check_name(f"llm:{name}")
    annotations = open_database(folder, database)
    sheets = annotations.add_and_get_sheets(
        draw_sheets(ScanStore.open(folder), keys, controls, seed)
    )
    chat = open_chat(name, endpoint, os.environ.get(key_from), longest, **options)
    print_cost(expected_usage(chat, sheets, longest))
    if dry_run:
        return
    answers = []
    for answer in answers_by_llm(chat, sheets, at_once if endpoint else 1):
        answers.append(answer)
        if answer.answers is not None:
            annotations.answer(answer.sheet, annotator, answer.answers)
    _print_usage(folder, annotator, answers, chat)


def print_cost(before: Usage) -> None:
    """Print the expected cost, before anything is asked."""
    from ffmem.annotations.llm_annotator import REPAIRS

    say(
        f"{before.asked} questions to ask, {before.known} known already: about {before.read:,} "
        f"tokens to read and at most {before.written:,} to write; a reply that breaks the "
        f"rules is sent back up to {REPAIRS} times, which costs as much again"
    )


def _print_usage(folder: Path, who: str, answers: list[LlmAnswer], chat: CachedChat) -> None:
    """Print the results and the cost."""
    usage = chat.usage
    say(
        f"{usage.asked} requests, {usage.known} replies known before; {usage.read:,} tokens read, "
        f"{usage.written:,} written"
    )
    refused = [answer for answer in answers if answer.answers is None]
    example = f"sheet {refused[0].sheet.name}: {refused[0].dropped[0]}" if refused else ""
    if refused and len(refused) == len(answers):
        raise AnnotatorError(
            f"no reply could be used, also after repair, e.g. {example}; take a model that follows "
            "instructions"
        )
    repaired = sum(answer.replies > 1 and answer.answers is not None for answer in answers)
    dropped = sum(len(answer.dropped) for answer in answers if answer.answers is not None)
    say(
        f"{len(answers) - len(refused)} of {len(answers)} sheets answered, {repaired} after "
        f"repair and less {dropped} patterns that broke the rules; {len(refused)} refused"
    )
    if refused:
        say(f"  e.g. {example}")
    say(f"see: ffmem patterns {folder} --annotator {who}")
