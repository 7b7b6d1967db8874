"""The published JSON Schema, and the documents of the commands."""

import json
from pathlib import Path

import jsonschema
import msgspec
import pytest
from click.testing import CliRunner

from docs.generate import SCHEMA
from hangbench.record import CORPUS
from hangdoc import codec
from hangdoc.cli.group import cli
from hangdoc.commands import documents
from hangdoc.reasoning.engine import diagnose
from hangdoc.schema import diagnosis_schema

VALIDATOR = jsonschema.Draft202012Validator(diagnosis_schema())
LINES = (
    "torchrun --nnodes 2 --node-rank 0 --master-addr a t.py --lr 1",
    "torchrun --nnodes 2 --node-rank 1 --master-addr b t.py",
)


def document(*arguments: str, code: int = 0) -> dict[str, object]:
    """What a command prints on stdout: one document and nothing else."""
    result = CliRunner().invoke(cli, arguments, standalone_mode=False)
    assert result.exception is None
    assert result.return_value == code
    found: dict[str, object] = json.loads(result.stdout)
    if arguments[0] in documents.BY_COMMAND:
        schema = CliRunner().invoke(cli, ["schema", arguments[0]], standalone_mode=False)
        jsonschema.validate(found, json.loads(schema.stdout))
    return found


def test_the_schema_is_one() -> None:
    jsonschema.Draft202012Validator.check_schema(diagnosis_schema())
    assert document("schema") == json.loads(SCHEMA.read_text())


@pytest.mark.parametrize("path", sorted(CORPUS.glob("*.hangdoc")), ids=lambda path: path.stem)
def test_real_documents_fit_it(path: Path) -> None:
    VALIDATOR.validate(json.loads(msgspec.json.encode(diagnose(codec.read(path)))))


@pytest.mark.parametrize(
    "broken", [{"verdict": "fine"}, {"jobs": [{}]}, {"schema": "hangdoc.diagnosis/2"}, {"taken_at": None}]
)
def test_what_does_not_fit_is_refused(broken: dict[str, object]) -> None:
    plain = json.loads(msgspec.json.encode(diagnose(codec.read(CORPUS / "recv_never.hangdoc"))))
    VALIDATOR.validate({**plain, "a_later_field": 1})
    with pytest.raises(jsonschema.ValidationError):
        VALIDATOR.validate({**plain, **broken})


def test_every_field_is_described_where_its_name_does_not_say_it() -> None:
    finding = diagnosis_schema()["$defs"]["Finding"]["properties"]
    assert "same hang" in finding["id"]["description"]


@pytest.mark.parametrize("command", [["diagnose"], *([name] for name in documents.BY_COMMAND)], ids=str)
def test_every_document_has_a_schema_that_names_it(command: list[str]) -> None:
    schema = document("schema", *command)
    jsonschema.Draft202012Validator.check_schema(schema)
    properties, required = schema["properties"], schema["required"]
    assert isinstance(properties, dict) and isinstance(required, list)
    assert properties["schema"] == {"const": schema["title"]} and "schema" in required
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({}, schema)


def test_the_page_names_the_fields_of_each_document() -> None:
    page = (SCHEMA.parent / "json.md").read_text()
    for kind in documents.BY_COMMAND.values():
        section = page.partition(f"## `{kind.__struct_defaults__[-1]}`")[2].partition("\n## ")[0]
        fields = set(kind.__struct_fields__) - {"schema"}
        assert {name for name in fields if f"`{name}`" not in section} == set(), kind


def test_a_command_without_a_document_is_refused() -> None:
    result = CliRunner().invoke(cli, ["schema", "watch"], standalone_mode=False)
    assert str(result.exception) == (
        "'watch' has no JSON document. Commands with one: diagnose, preflight, launch-diff, doctor, rules."
    )


def test_rules_as_json() -> None:
    whole, one = document("rules", "--json"), document("rules", "shard-mismatch", "--json")
    assert whole["schema"] == one["schema"] == "hangdoc.rules/1"
    assert len(msgspec.convert(whole, documents.Rules).rules) > 30
    (rule,) = msgspec.convert(one, documents.Rules).rules
    assert rule.code == "HD101"
    assert rule.page is not None and rule.page.startswith("# HD101 shard-mismatch")


def test_launch_diff_as_json() -> None:
    found = msgspec.convert(document("launch-diff", "--json", *LINES, code=1), documents.Comparison)
    assert found.schema == "hangdoc.launch-diff/1"
    assert found.lines == ("node 0", "node 1")
    assert [row.name for row in found.rows if row.wrong] == ["master-addr"]


def test_preflight_as_json() -> None:
    plain = document("preflight", "--json")
    found = msgspec.convert(plain, documents.Preflight)
    assert found.schema == "hangdoc.preflight/1"
    assert found.nodes == ("this host",)
    assert {check.status for check in found.checks} <= {"pass", "warn", "fail", "unknown"}


def test_doctor_as_json() -> None:
    result = CliRunner().invoke(cli, ["doctor", "--json"], standalone_mode=False)
    found = msgspec.json.decode(result.stdout, type=documents.Doctor)
    assert found.schema == "hangdoc.doctor/1"
    assert found.missing == sum(not one.works for one in found.abilities)
    assert result.return_value == (4 if found.missing else 0)
    assert all(one.works or one.remedy for one in found.abilities)
