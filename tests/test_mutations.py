"""What ``make mutate`` breaks is still in the code: running all of it takes minutes, this takes none."""

from pathlib import Path

from reliability.mutations import MUTATIONS

TESTS = Path(__file__).parent


def test_every_mutation_has_its_line_and_its_tests():
    for mutation in MUTATIONS:
        code = (TESTS.parent / "src" / "firm" / mutation.file).read_text()
        assert code.count(mutation.old) == 1, mutation.name
        assert mutation.new != mutation.old, mutation.name
        for test in mutation.tests.split():
            assert (TESTS / test.partition("::")[0]).exists(), mutation.name
    assert len({mutation.name for mutation in MUTATIONS}) == len(MUTATIONS)


def test_the_documentation_counts_them():
    text = (TESTS.parent / "docs" / "reliability.md").read_text()
    assert f"# {len(MUTATIONS)} lines broken on purpose" in text
