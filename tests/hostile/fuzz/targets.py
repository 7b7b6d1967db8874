"""All targets."""

from tests.hostile.fuzz import Target
from tests.hostile.fuzz.answers import attack_dump, attack_recorder, attack_stacks
from tests.hostile.fuzz.bundles import attack_bundle
from tests.hostile.fuzz.interpreters import attack_elf, attack_interpreter, attack_objects
from tests.hostile.fuzz.redactions import attack_redaction
from tests.hostile.fuzz.sources import attack_expression, attack_source

TARGETS = (
    Target("bundle", attack_bundle, 2_000),
    Target("interpreter", attack_interpreter, 150),
    Target("objects", attack_objects, 1_000),
    Target("elf", attack_elf, 3_000),
    Target("source", attack_source, 250),
    Target("expression", attack_expression, 3_000),
    Target("redaction", attack_redaction, 600),
    Target("recorder", attack_recorder, 3_000),
    Target("dump", attack_dump, 3_000),
    Target("stacks", attack_stacks, 3_000),
)
