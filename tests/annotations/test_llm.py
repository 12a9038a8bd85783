"""The language-model annotator against a real server, `transformers serve` on a scripted model."""

from __future__ import annotations

import http.server
import json
import random
import threading
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from ffmem.annotations.chat import (
    CachedChat,
    Endpoint,
    LocalChat,
    Reply,
    Usage,
    adapt_settings,
)
from ffmem.annotations.llm_annotator import (
    answers_by_llm,
    ask_about_sheet,
    expected_usage,
    parse_reply,
    question,
)
from ffmem.annotations.sheets import PatternAnswer, Sheet, SheetPrefix
from ffmem.errors import AnnotatorError
from ffmem.models.language_model import LanguageModel
from tests.analyses.conftest import scanned_lines
from tests.analyses.planted import filler
from tests.annotations.served import FEW, MIXED, TWO, reply, save_scripted, served
from tests.annotations.test_sheets import SHEET
from tests.cli.test_commands import run
from tests.waiting import LONGEST

pytest.importorskip("openai")
SAID_TWO = (
    PatternAnswer("ends with thing", "shallow", (1, 2, 3)),
    PatternAnswer("land", "semantic", (4, 5, 6, 7)),
)
MOST = 20
Capture = pytest.CaptureFixture[str]


def sheet(word: str) -> Sheet:
    first = SheetPrefix(f"a {word} ", "day")
    return replace(SHEET, name=word, prefixes=(first, *SHEET.prefixes[1:]))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("scripted")
    save_scripted(out)
    return out


@pytest.fixture(scope="module")
def url(folder: Path) -> Iterator[str]:
    with served(folder) as found:
        yield found


class Gateway(http.server.ThreadingHTTPServer):
    """Passes requests on to a server, but refuses the first few, as a busy service does."""

    daemon_threads = True

    def __init__(self, behind: str, refusals: list[int]) -> None:
        super().__init__(("127.0.0.1", 0), Passing)
        self.behind, self.refusals = behind, refusals
        self.keys: list[str | None] = []


class Passing(http.server.BaseHTTPRequestHandler):
    server: Gateway

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.keys.append(self.headers["Authorization"])
        if self.server.refusals:
            self.send_response(self.server.refusals.pop(0))
            self.send_header("Retry-After", "0.05")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        onward = urllib.request.Request(
            self.server.behind + self.path.removeprefix("/v1"),
            body,
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(onward, timeout=LONGEST) as answer:
            data = answer.read()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_words: object) -> None:
        pass


@pytest.fixture
def gateway(url: str) -> Iterator[Gateway]:
    found = Gateway(url, [])
    threading.Thread(target=found.serve_forever, daemon=True).start()
    yield found
    found.shutdown()
    found.server_close()


def at(gateway: Gateway) -> str:
    return f"http://127.0.0.1:{gateway.server_address[1]}/v1"


def test_a_server_and_the_model_itself_give_the_same_answers(url: str, folder: Path) -> None:
    sheets = [sheet(word) for word in ("good", "repaired", "rubbish", "mixed", "nothing")]
    near = list(answers_by_llm(LocalChat.load(str(folder), MOST), sheets))
    far = list(answers_by_llm(Endpoint(url, str(folder), MOST), sheets, at_once=2))
    assert near == far
    good, repaired, rubbish, mixed, nothing = far
    assert (good.answers, good.replies) == (SAID_TWO, 1)
    assert (repaired.answers, repaired.replies) == (SAID_TWO, 2)
    assert (rubbish.answers, rubbish.replies) == (None, 3)
    assert "no JSON" in rubbish.dropped[0]
    assert (mixed.answers, mixed.replies) == ((PatternAnswer("water", "semantic", (2, 6, 8)),), 3)
    assert mixed.dropped == ("pattern 2: 30 is not among the prefixes 1 to 8; change it",)
    assert (nothing.answers, nothing.dropped, nothing.replies) == ((), (), 1)


def test_a_question_is_paid_for_once_and_its_cost_known_before(
    url: str, folder: Path, tmp_path: Path
) -> None:
    sheets = [sheet("good"), sheet("repaired")]

    def fresh() -> CachedChat:
        return CachedChat(Endpoint(url, str(folder), MOST), tmp_path / "replies", "model", MOST)

    chat = fresh()
    before = expected_usage(chat, sheets, MOST)
    assert (before.asked, before.known, before.written) == (2, 0, 2 * MOST)
    letters = sum(len(turn["content"]) for each in sheets for turn in question(each))
    assert before.read == letters // 4
    first = list(answers_by_llm(chat, sheets))
    assert (chat.usage.asked, chat.usage.known) == (3, 0)
    assert chat.usage.read > letters - 200  # a token a byte, but for the cues
    again = fresh()
    assert expected_usage(again, sheets, MOST) == Usage(0, 2, 0, 0)
    assert list(answers_by_llm(again, sheets)) == first
    assert again.usage == Usage(0, 3, 0, 0)
    other = CachedChat(Endpoint(url, str(folder), MOST), tmp_path / "replies", "another", MOST)
    assert not other.knows(question(sheets[0]))


def test_a_busy_service_is_asked_again_and_the_key_goes_nowhere_else(
    gateway: Gateway, folder: Path, tmp_path: Path
) -> None:
    gateway.refusals = [429, 503, 429]
    endpoint = Endpoint(at(gateway), str(folder), MOST, key="secret-key")
    chat = CachedChat(endpoint, tmp_path, "model", MOST)
    assert ask_about_sheet(chat, sheet("good")).answers == SAID_TWO
    assert gateway.keys == ["Bearer secret-key"] * 4
    assert chat.usage.asked == 1
    assert not any("secret" in path.read_text() for path in tmp_path.iterdir())


def test_what_cannot_be_repaired_by_asking_again_is_one_sentence(
    gateway: Gateway, folder: Path
) -> None:
    gateway.refusals = [401]
    with pytest.raises(AnnotatorError, match="--key-from"):
        Endpoint(at(gateway), str(folder), MOST)(question(SHEET))
    gateway.refusals = [404]
    with pytest.raises(AnnotatorError, match="'nobody'"):
        Endpoint(at(gateway), "nobody", MOST)(question(SHEET))
    assert len(gateway.keys) == 2


@pytest.mark.parametrize("at_once", [1, 3])
def test_an_error_stops_the_asking(at_once: int) -> None:
    """However quick the threads are, each has asked once at most."""
    asked: list[object] = []

    def refuse(messages: object) -> Reply:
        asked.append(messages)
        raise AnnotatorError("the key is wrong; put in the right one")

    with pytest.raises(AnnotatorError, match="the key is wrong"):
        list(answers_by_llm(refuse, [SHEET] * 2000, at_once))
    assert 1 <= len(asked) <= at_once


def test_settings_bend_to_what_the_server_says() -> None:
    settings = {"temperature": 0, "max_tokens": 7}
    bent = adapt_settings(settings, "Unsupported parameter: use 'max_completion_tokens' instead")
    assert bent == {"temperature": 0, "max_completion_tokens": 7}
    assert adapt_settings(bent, "'temperature' does not support 0") == {"max_completion_tokens": 7}
    assert adapt_settings(settings, "the model is not here") is None


def test_the_question_shows_every_prefix_and_nothing_of_the_key() -> None:
    system, user = question(SHEET)
    assert user["content"].splitlines()[:-2] == [
        f"{rank}. {' '.join((prefix.before + prefix.last).split())}"
        for rank, prefix in enumerate(SHEET.prefixes, 1)
    ]
    control = replace(SHEET, key=None, control="random", name="other", layer=9)
    assert question(control) == [system, user]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("no braces at all", "no JSON object"),
        ('{"pattern": []}', 'no list "patterns"'),
        ('{"patterns": 3}', 'no list "patterns"'),
        (reply(("...", "shallow", [1, 2, 3])), "'...' is not a description"),
        (reply(("x" * 501, "shallow", [1, 2, 3])), "at most 500"),
        (reply(("a", "both", [1, 2, 3])), "write shallow or semantic"),
        (FEW, "needs 3 different prefixes and this has 2"),
        (reply(("a", "shallow", [1, 1, 2])), "prefix 1 is named twice"),
        (MIXED, "pattern 2: 30 is not among"),
        (reply(("a", "shallow", [1, 2, 0])), "0 is not among"),
        ('{"patterns": [{"description": "a", "class": "shallow", "prefixes": "1-3"}]}', "whole"),
        ('{"patterns": [7]}', "not an object"),
        (reply(("a", "shallow", [1, 2, 3]), ("A", "semantic", [1, 2, 3])), "given before"),
    ],
)
def test_a_reply_that_breaks_the_rules_is_told_so(text: str, fault: str) -> None:
    found = parse_reply(text, SHEET)
    assert fault in " ".join(found.faults)
    assert found.readable == ('"patterns": [' in text)


def test_what_is_wrong_with_a_pattern_is_one_sentence_under_its_own_number() -> None:
    text = reply(("a", "shallow", [1, 2, 3]), ("b", "both", [1, 2]), ("c", "semantic", [4, 5, 6]))
    found = parse_reply(text.replace("[{", '["no pattern", {', 1), SHEET)
    assert [each.description for each in found.answers] == ["a", "c"]
    first, second = found.faults
    assert first == "pattern 1: it is not an object"
    assert second.startswith("pattern 3: the class is 'both'")
    assert "needs 3 different prefixes" in second


def test_a_reply_is_found_among_other_words() -> None:
    assert (
        parse_reply(f'Sure! {{"a": 1}} <think>{{</think>\n{TWO} hope that helps {{', SHEET).answers
        == SAID_TWO
    )


@pytest.mark.usefixtures("few_calibration_keys")
def test_a_language_model_answers_sheets_like_anybody_else(
    capsys: Capture,
    relu: LanguageModel,
    folder: Path,
    url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`ffmem annotate llm` and `score`, end to end: a scan, a real server, records, Fig 2."""
    draw = random.Random(0)
    lines = [f"{'good' if n % 2 else 'repaired'} {' '.join(filler(draw))}"[:55] for n in range(150)]
    scan, model = tmp_path / "scan", folder
    scanned_lines(relu, scan, lines, top=50, sample=32)
    monkeypatch.setenv("FFMEM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("MY_KEY", "my-secret-key")
    words = ["annotate", "llm", str(scan), "--llm", str(model), "--keys", "1", "--longest", "20"]
    code, out, _ = run(capsys, *words, "--dry-run")
    assert code == 0
    assert out.startswith("9 questions to ask, 0 known already: about ")
    assert "at most 180 to write; a reply" in out
    asked = [*words, "--endpoint", url, "--key-from", "MY_KEY", "--at-once", "2"]
    code, out, _ = run(capsys, *asked)
    assert code == 0
    assert "9 of 9 sheets answered" in out
    code, out, _ = run(capsys, *asked)
    assert out.startswith("0 questions to ask, 9 known already")
    assert "0 requests, " in out
    kept = [path.read_text() for path in tmp_path.rglob("*.json")]
    assert kept
    assert not any("my-secret-key" in text for text in kept)
    who = f"llm:{model}"
    code, out, _ = run(capsys, "patterns", str(scan), "--annotator", who)
    assert code == 0
    assert "3 keys, 100 % with a pattern" in out
    assert "control keys of random prefixes: 100.0 % have a pattern" in out
    assert "do not trust Fig 2" in out
    assert "  keys     any " in out
    assert "annotate rules" not in out
    run(capsys, "annotate", "rules", str(scan))
    code, out, _ = run(capsys, "annotate", "score", str(scan))
    assert code == 0
    assert who in out.splitlines()
    assert "rules" in out.splitlines()
    scores = json.loads((scan / "analyses" / "annotators.json").read_text())["result"]["annotators"]
    rows = {(row["on"], row["kind"], row["against"]) for row in scores[who]}
    assert {("keys", "shallow", "random"), ("controls", "semantic", "random")} <= rows
    assert f"{who} and rules: kappa" in run(capsys, "annotate", "agreement", str(scan))[1]


def test_a_server_that_is_not_there_is_one_sentence(
    capsys: Capture, relu: LanguageModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = random.Random(0)
    folder = tmp_path / "scan"
    scanned_lines(relu, folder, [" ".join(filler(draw))[:55] for _ in range(80)], top=50, sample=9)
    monkeypatch.setenv("FFMEM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("ffmem.annotations.chat.RETRIES", 1)
    words = ["annotate", "llm", str(folder), "--llm", "x", "--keys", "1"]
    code, _, err = run(capsys, *words, "--endpoint", "http://127.0.0.1:9/v1")
    assert code == 2
    assert "check that the server runs" in err
    code, _, err = run(capsys, "annotate", "score", str(folder))
    assert code == 2
    assert "nobody has answered" in err


def test_a_model_that_only_chats_is_refused_in_one_sentence(
    capsys: Capture, relu: LanguageModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = random.Random(0)
    folder = tmp_path / "scan"
    scanned_lines(relu, folder, [" ".join(filler(draw))[:55] for _ in range(80)], top=50, sample=9)
    replies = iter(["I like rivers."] * 3)  # to the first sheet; the others are answered

    def chat(_: object) -> Reply:
        return Reply(next(replies, '{"patterns": []}'), 1, 1)

    def opened(name: str, *_: object, **__: object) -> CachedChat:
        return CachedChat(chat, tmp_path / name, name, 20)

    monkeypatch.setattr("ffmem.annotations.chat.open_chat", opened)
    words = ["annotate", "llm", str(folder), "--keys", "1", "--llm"]
    code, out, _ = run(capsys, *words, "some")
    assert code == 0
    assert "8 of 9 sheets answered, 0 after repair" in out
    assert "there is no JSON object in it" in out
    replies = iter(["I like rivers."] * 27)
    code, out, err = run(capsys, *words, "none")
    assert code == 2
    assert "no reply could be used, also after repair, e.g. sheet " in err
    assert "see: ffmem patterns" not in out


def test_the_question_names_base_rates_and_says_that_copies_count_once() -> None:
    """What careful readers were told; nothing in it tells a key from a control."""
    system, user = question(SHEET)
    for words in ("drawn at random, two or three end in the same", "counts once", "at most 6"):
        assert words in " ".join(system["content"].split())
    control = replace(SHEET, key=None, control="random")
    assert question(control) == [system, user]


def test_a_reply_of_too_many_patterns_goes_back() -> None:
    def text(count: int) -> str:
        each = [
            {"description": f"pattern {number}", "class": "shallow", "prefixes": [1, 2, 3]}
            for number in range(count)
        ]
        return json.dumps({"patterns": each})

    assert len(parse_reply(text(6), SHEET).answers) == 6
    found = parse_reply(text(7), SHEET)
    assert (found.answers, found.readable) == ((), False)
    assert found.faults == ("there are 7 patterns; give the 6 clearest",)
