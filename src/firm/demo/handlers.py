"""What the buttons of the page do."""

# No `from __future__ import annotations` here: gradio looks at the annotations to fill in who asks and the progress
# bar, and gradio itself is known only inside the function.

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from firm.demo.folder import Workspace
from firm.demo.inputs import request_from
from firm.demo.request import Request, in_words
from firm.demo.restoring import Restorer
from firm.demo.results import shown, shown_steps, shown_trajectory
from firm.demo.studies import follow, study_steps
from firm.demo.watch import StoppedError, Stops, Watch

NO_PICTURE = "**Choose a picture first**, or one of the examples."
STOPPED = "**Stopped.**"


@dataclass(frozen=True)
class Handlers:
    """One for each button, and one for a visitor who leaves."""

    restore: Callable[..., Any]
    compare: Callable[..., Any]
    follow: Callable[..., Any]
    cancel: Callable[..., Any]
    leave: Callable[..., Any]


def make_handlers(restorer: Restorer, workspace: Workspace, stops: Stops) -> Handlers:
    """Errors that a visitor can mend are told in the status, the first output; the rest of the page stays as it was."""
    import gradio as gr

    def run(
        work: Callable[[Request, Watch, Path], list[Any]], values: tuple[Any, ...], who: Any, bar: Any, n: int
    ) -> Any:
        """Generate the outputs once: the folder of the files goes when gradio has taken them and comes back."""
        visitor = str(who.session_hash)
        stop = stops.start(visitor)
        unchanged = [gr.skip()] * (n - 1)
        request = None
        try:
            with workspace.results() as folder:
                watch = Watch(stop, lambda done, total, text: bar((done, total), desc=text, unit="network calls"))
                request = request_from(folder, values)
                yield [NO_PICTURE, *unchanged] if request is None else work(request, watch, folder)
        except StoppedError:
            yield [STOPPED, *unchanged]
        except Exception as error:
            text = str(error) if request is None else in_words(error, request)
            yield [f"**Not restored:** {text}", *unchanged]
        finally:
            stops.end(visitor, stop)

    def start(who: gr.Request, bar: Any = gr.Progress(), *values: Any) -> Iterator[list[Any]]:  # noqa: B008
        yield from run(lambda *args: shown(restorer.restore(*args)), values, who, bar, 11)

    def compare(who: gr.Request, bar: Any = gr.Progress(), *values: Any) -> Iterator[list[Any]]:  # noqa: B008
        yield from run(lambda *args: shown_steps(study_steps(restorer, *args)), values, who, bar, 4)

    def trace(who: gr.Request, bar: Any = gr.Progress(), *values: Any) -> Iterator[list[Any]]:  # noqa: B008
        *first, step = values

        def work(request: Request, watch: Watch, folder: Path) -> list[Any]:
            return shown_trajectory(follow(restorer, request, int(step), watch, folder))

        yield from run(work, tuple(first), who, bar, 3)

    def cancel(who: gr.Request) -> list[Any]:
        """Stop what runs at the next network call; what waits in the queue, gradio takes out."""
        stops.stop(str(who.session_hash))
        return [gr.update(interactive=False), STOPPED, gr.skip(), gr.skip()]

    def leave(who: gr.Request) -> None:
        stops.stop(str(who.session_hash))

    return Handlers(start, compare, trace, cancel, leave)
