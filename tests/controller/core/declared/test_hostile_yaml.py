"""Files that mean harm, or were hurt on the way: refused in words, soon, and never by a trace."""

import json
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.core.declared.drills import parse_drills
from controller.core.declared.plan_files import read_execution, read_mixture
from controller.core.declared.planning import make_config, make_genesis, make_policy
from controller.core.declared.problems import MAX_TOLD, Problem, SpecError
from controller.core.declared.run_file import parse_run_file
from controller.core.declared.yaml_text import MAX_CHARS, flatten, read_yaml
from tests.run_files import GOOD, some_sources, spoil

SAMPLES = Path(__file__).parents[4] / "samples"
UNPRINTED = re.compile(
    r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]"
)


def read(text):
    """Return the document and the refusals, as (rule, message)."""
    document, problems = read_yaml(text, "Edit it.", "my.yaml")
    return document, [(it.rule, str(it)) for it in problems]


def laughs(depth):
    lines = [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, depth)]
    return "\n".join(["a0: &a0 lol", *lines])


HOSTILE = {
    "aliases that expand to billions": (laughs(12), "yaml.alias", "line 2"),
    "an alias of itself": ("a: &a [*a]", "yaml.alias", "a.0: aliases"),
    "an alias as a name": ("a: &a b\n*a : c", "yaml.alias", "line 2"),
    "ten thousand lists": ("[" * 10_000, "yaml.depth", "20 levels"),
    "ten thousand mappings": ("{a: " * 10_000, "yaml.depth", "20 levels"),
    "ten thousand blocks": ("- " * 10_000, "yaml.depth", "20 levels"),
    "a ladder of blocks": (
        "".join(f"{' ' * n}a:\n" for n in range(400)),
        "yaml.depth",
        "line 21",
    ),
    "a name twice, deep down": ("a:\n  b: {c: 1,\n    c: 2}", "yaml.duplicate", "a.b.c: it stands"),
    "a name twice, once in quotes": ('a: 1\n"a": 2', "yaml.duplicate", "in line 1 and again"),
    "a merge": ("a: {<<: {b: 1}}", "yaml.merge", "a: merges"),
    "a tag of Python": ("a: !!python/object/apply:os.system [ls]", "yaml.tag", "a: tags"),
    "a tag of bytes": ("a: !!binary aGk=", "yaml.tag", "line 1"),
    "a tag of one's own": ("a:\n  - !mine 3", "yaml.tag", "a.0: tags (!name) are refused"),
    "a tagged name": ("!!str a: 3", "yaml.tag", "a: tags"),
    "two documents": ("a: 1\n---\nb: 2", "yaml.documents", "another begins in line 2"),
    "a tab": ("a:\n\tb: 1", "yaml.syntax", "line 2, column 1"),
    "a byte order mark within": ("a: 1\n\ufeffb: 2", "yaml.hidden", "U+FEFF in line 2, column 1"),
    "a zero byte": ("a: 1\nb: \0", "yaml.control", "U+0000 in line 2, column 4"),
    "a zero byte, escaped": ('a: "\\0"', "yaml.control", "a: control characters"),
    "a zero byte in a name": ('"a\\0": 1', "yaml.control", "a\\u0000: control"),
    "an escape sequence of terminals": ('a: "\\e[2J"', "yaml.control", "a: control"),
    "a line break that editors do not show": ("a: 1\u2028b: 2", "yaml.control", "U+2028"),
    "a change of the reading direction": ("a: x\u202ey", "yaml.hidden", "U+202E"),
    "the same, escaped": ('a: "x\\u202ey"', "yaml.control", "hidden ones"),
    "half a surrogate pair": ('a: "\\ud800"', "yaml.control", "a: control"),
    "5,000 digits": (f"a: {'9' * 5_000}", "yaml.digits", "a is 999999999...; at most 30"),
    "a number that is octal to some": ("a: 017", "yaml.octal", "write 17"),
    "a number too small to be one": ("a: .nan", "yaml.float", "a is .nan"),
    "a name that is no text": ("1: 2", "yaml.name", 'write "1" in quotes (line 1)'),
    "a name that is nothing": ("~: 2", "yaml.name", 'write "~" in quotes'),
    "a name that is a list": ("? [a]\n: 2", "yaml.name", "not a list or mapping (line 1)"),
    "a name without an end": (f"{'x' * 5_000}: 1", "yaml.syntax", "not allowed here"),
    "a directive without an end": ("%" * 5_000, "yaml.syntax", "directive"),
    "a quotation without an end": (
        "a: '" + "x\n" * 5_000,
        "yaml.syntax",
        "quoted scalar of line 1",
    ),
    "more than fits": ("#" * (MAX_CHARS + 1), "yaml.size", "262,145 characters"),
}


@pytest.mark.parametrize(("text", "rule", "words"), HOSTILE.values(), ids=list(HOSTILE))
def test_hostile_text_is_refused_by_its_rule_and_its_place(text, rule, words):
    _, problems = read(text)
    assert rule in [name for name, _ in problems]
    assert any(words in message for name, message in problems if name == rule), problems[:3]
    assert len(problems) <= 201
    assert not any(UNPRINTED.search(message) for _, message in problems)
    assert max(len(message) for _, message in problems) < 700


@pytest.mark.parametrize(
    "text",
    [
        "\ufeffa: [1, x]",
        "a: [1, x]\r\n",
        "# \u00e9\ra:\r- 1\r- x\r",
        "%YAML 1.1\n---\na: [1, x]\n...\n",
        "--- {a: [+1, 'x']}",
        'a: &unused [1, "x"]',
    ],
)
def test_text_of_other_systems_and_styles_reads_the_same(text):
    assert read(text) == ({"a": [1, "x"]}, [])


def test_words_of_other_versions_stay_words():
    for word in (
        "yes",
        "no",
        "on",
        "off",
        "NO",
        "1:30",
        "0b11",
        "0o17",
        "2027-01-31",
        "1e6",
        "nan",
    ):
        assert read(f"{word}: {word}") == ({word: word}, []), word


def test_mistake_in_five_thousand_lines_is_found_in_its_line():
    rows = [f"  - {{fromDay: {n}, tokensPerSecond: 5}}" for n in range(5_000)]
    rows[4_321] = "  - {fromDay: 4321, tokensPerSecond 5"
    assert "flow mapping of line 4323" in read("\n".join(["a:", *rows]))[1][0][1]
    names = [f"n{n}: 5" for n in range(5_000)]
    names[4_321] = "n7: 5"
    assert "in line 8 and again in line 4322" in read("\n".join(names))[1][0][1]


# --- messages ---


def refusal_of(text):
    with pytest.raises(SpecError) as caught:
        parse_run_file(text, "my.yaml")
    return str(caught.value)


def test_twenty_problems_are_told_and_the_rest_is_counted():
    unknown = "".join(f"  unknown{n}: 1\n" for n in range(70))
    lines = refusal_of(GOOD + unknown).splitlines()
    assert len(lines) == MAX_TOLD + 1
    assert lines[-1] == "... and 50 more like these."
    assert all(line.endswith("ctl launch my.yaml --dry-run") for line in lines[:-1])


@pytest.mark.parametrize(
    ("old", "new", "shown"),
    [
        ("keep: 3", "k\u0435ep: 3", 'unknown field "k\\u0435ep". Did you mean "keep"?'),
        ("keep: 3", f"keep: {'x' * 9_000}", f'keep is "{"x" * 56}...; it must be a whole number'),
        ("keep: 3", f"keep: [{'[1], ' * 3_000}]", "keep is [[1], [1], "),
        ("keep: 3", f"? {'y' * 9_000}\n    : 3", f'unknown field "{"y" * 57}..."'),
        ("code: {kind", f'? "{"z" * 9_000}"\n      : {{kind', f"sources.{'z' * 57}... is"),
        ("kind: local", 'kind: "lo\u00a0cal"', 'kind is "lo\\u00a0cal"'),
    ],
)
def test_values_and_names_are_cut_and_what_looks_alike_is_told_apart(old, new, shown):
    text = refusal_of(
        spoil(
            GOOD.replace("{everySteps: 10, keep: 3}", "\n    everySteps: 10\n    keep: 3"), old, new
        )
    )
    assert shown in text
    assert max(map(len, text.splitlines())) < 700


def test_next_command_is_never_cut():
    path = "/".join(["a" * 200] * 6)
    assert str(Problem("a.b", "f", None, "it is wrong", f"Edit {path}")).endswith(path)


# --- any change of a file that works ---

DOCUMENTS = [
    read_yaml(text, "")[0]
    for text in (GOOD, *((SAMPLES / name).read_text() for name in ("deadline.yaml", "hero.yaml")))
]
LEAVES = [(document, path.split(".")) for document in DOCUMENTS for path in flatten(document)]
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-1, 200),
    st.sampled_from([2**32, 10**9, 10**18, 10**30]),
    st.text(max_size=12),
    st.sampled_from(["0", "0.5", "0s", "5m", "9d", "2030-01-01T00:00:00Z", "auto", "declared"]),
    st.lists(st.integers(0, 3), max_size=2),
    st.dictionaries(st.sampled_from(["kind", "code", "a"]), st.integers(0, 3), max_size=2),
)


@st.composite
def changed_documents(draw):
    """Return a run file as JSON, which YAML reads, with a value or two replaced."""
    document, path = draw(st.sampled_from(LEAVES))
    changed = json.loads(json.dumps(document))
    places = [path, draw(st.sampled_from([it for of, it in LEAVES if of is document]))]
    for place in places[: draw(st.integers(1, 2))]:
        _put(changed, place, draw(VALUES))
    return json.dumps(changed, ensure_ascii=draw(st.booleans()))


def _put(value, path, leaf):
    for part in path[:-1]:
        value = value[int(part)] if isinstance(value, list) else value[part]
    value[int(path[-1]) if isinstance(value, list) else path[-1]] = leaf


def attempt(parse, text):
    """Return what was read, or None and the words of the refusal."""
    try:
        return parse(text), ""
    except SpecError as error:
        return None, str(error)


@settings(max_examples=60, deadline=None)
@given(changed_documents())
def test_changed_file_is_refused_in_words_or_can_be_launched(text):
    run_file, words = attempt(parse_run_file, text)
    assert not UNPRINTED.search(words)
    if run_file is None:
        return
    sources = dict.fromkeys(run_file.spec.data.sources, some_sources()["code"])
    plan = make_genesis(run_file, "u", sources)
    assert plan.values_at(plan.total_steps - 1)
    assert make_config(run_file, "u", sources).encode()
    assert make_policy(run_file, "u", sources).ranks >= 1


TORN = "[]{}:,-?&*!|>'\"%@`#\t\n\r\0\x1b\x85\u202e\ufeff~<=. 0a"


@settings(max_examples=30, deadline=None)
@given(
    st.sampled_from([GOOD, (SAMPLES / "deadline.yaml").read_text()]),
    st.lists(
        st.tuples(st.floats(0, 1), st.integers(0, 30), st.text(TORN, max_size=4)),
        min_size=1,
        max_size=4,
    ),
)
def test_torn_file_is_read_or_refused_in_words(text, tears):
    for place, length, put in tears:
        at = int(place * len(text))
        text = text[:at] + put + text[at + length :]
    for parse in (
        parse_run_file,
        lambda text: parse_drills(text, "drill.yaml"),
        lambda text: read_mixture(text, GOOD, "mixture.yaml", "Edit it."),
        lambda text: read_execution(text, GOOD, "execution.yaml", "Edit it."),
    ):
        _, words = attempt(parse, text)
        assert not UNPRINTED.search(words)
