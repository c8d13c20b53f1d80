"""Run studies one after the other; what it will take, what went wrong."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from firm._util.files import is_full
from firm.reproduce.catalog import STUDIES, Study, require_data
from firm.reproduce.listing import minutes, read_record
from firm.reproduce.settings import Settings


def announce(studies: Sequence[Study], settings: Settings) -> None:
    """Say what will be run and how long it should take: as it took here before, else as where it was measured."""
    console, total = Console(highlight=False, markup=False), 0.0
    for study in studies:
        took = _before(study, settings)
        usual = study.quick if settings.quick else study.full
        total += usual if took is None else took
        source = f"took {minutes(took)} here before" if took is not None else _elsewhere(study, settings.quick)
        console.print(f"{study.name} ({study.paper}): {study.title}; {source}")
    if len(studies) > 1:
        console.print(f"{len(studies)} studies, about {minutes(total)} in all")


def _elsewhere(study: Study, quick: bool) -> str:
    """How long a study takes on the machine where that was measured, or is estimated."""
    if quick or study.measured:
        where = "two cores of an AMD EPYC" if quick or study.measured == "EPYC" else "one H200"
        return f"about {minutes(study.quick if quick else study.full)} on {where}"
    more = f", and {study.without}, which nobody has timed there" if study.without else ""
    return f"estimated at {minutes(study.full)} on one H200{more}"


def _before(study: Study, settings: Settings) -> float | None:
    """Minutes that the study took here with the same thoroughness; None where it was not run, or is damaged."""
    try:
        found = read_record(settings.folder(study.name))
    except ValueError:
        return None
    return found["seconds"] / 60 if found is not None and found["quick"] == settings.quick else None


def run_all(settings: Settings) -> list[str]:
    """Every study, then the report; one that fails does not stop the others. Returns the names of those that failed."""
    from firm.reproduce.report import write_report

    require_data(list(STUDIES), {"celeba": settings.celeba, "afhq": settings.afhq})
    announce(STUDIES, settings)
    console, failed = Console(highlight=False, markup=False), list[str]()
    for number, study in enumerate(STUDIES, start=1):
        console.rule(f"{number} of {len(STUDIES)}: {study.name}", align="left")
        try:
            study.run(settings)
        except (ValueError, OSError, RuntimeError) as error:
            if is_full(error):
                raise  # the others would find no room either
            console.print(f"{study.name} failed: {error}")
            failed.append(study.name)
    if len(failed) < len(STUDIES):
        write_report(settings.out, settings.out / "report.html")
    if failed:
        console.print(f"failed: {', '.join(failed)}")
    return failed
