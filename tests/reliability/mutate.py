"""``make mutate``: break the library on purpose, one line at a time, in a copy; a test must notice.

    python tests/reliability/mutate.py [WORD ...]       # those whose name holds one of the words

A mutation is a file, a piece of its text that occurs once, what stands there instead, and the tests that should fail.
Prints one line each, and those that survived. Ends with 1 if any survived, or if the text is no longer there.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]


class Mutation(NamedTuple):
    """One line that is wrong."""

    name: str
    file: str  # below src/firm
    old: str
    new: str
    tests: str  # below tests, separated by spaces


MUTATIONS = [
    Mutation("training: save the raw network, not the average", "training/trainer.py",
             "self.objective.save(self.average,", "self.objective.save(self.net,", "training"),
    Mutation("training: the best model is always overwritten", "training/loop.py",
             "if main > trainer.best:", "if True:", "training"),
    Mutation("training: no weight decay", "training/optimiser.py",
             "weight_decay=config.weight_decay, fused", "weight_decay=0.0, fused", "training"),
    Mutation("training: times of another task", "training/step.py",
             "first += r.total", "first += 0", "training"),
    Mutation("training: no mirror images", "training/feed.py", "if not c.flips:", "if True:", "training"),
    Mutation("training: no recomputation", "training/step.py",
             'Recomputed(net) if config.recompute == "calls" else net', "net", "training"),
    Mutation("training: no gradient clipping", "training/trainer.py",
             "clip_grad_norm_(self.params, c.clip)", "clip_grad_norm_(self.params, 1e9)", "training"),
    Mutation("training: the average forgets at another pace", "training/trainer.py",
             "sources, 1 - c.ema_decay)", "sources, (1 - c.ema_decay) / 2)", "training"),
    Mutation("training: no warm-up of the rate", "training/trainer.py",
             "return cosine * min(1.0, (self.step + 1) / max(1, c.rate_warmup))", "return cosine", "training"),
    Mutation("training: pickles are run", "training/checkpoint.py", "weights_only=True", "weights_only=False",
             "training"),
    Mutation("training: noise and images are not paired", "training/prior.py",
             "x_0 = x_0[pair(x_0, batch.x_1)]", "pass", "training/test_prior.py"),
    Mutation("training: balance forgets at once", "training/balance.py", "decay: float = 0.99", "decay: float = 0.5",
             "test_flow.py training"),
    Mutation("solver: autocast is not switched off", "operators/base.py",
             "with torch.autocast(z.device.type, enabled=False):", "if True:", "operators test_golden.py"),
    Mutation("solver: z starts from nothing", "_posterior_mean.py", "    z = x_t\n", "    z = torch.zeros_like(x_t)\n",
             "test_posterior_mean.py"),
    Mutation("solver: no damping", "_posterior_mean.py", "z_hat.to(x.dtype), beta)", "z_hat.to(x.dtype), 1.0)",
             "test_posterior_mean.py"),
    Mutation("solver: the previous iterate is the state", "_posterior_mean.py", "extra, z, context, k)",
             "extra, x_t, context, k)", "test_extra_inputs.py"),
    Mutation("sampling: one step too long", "_sampling.py", "dt = 1 / steps", "dt = 1 / max(1, steps - 1)",
             "test_sampling.py"),
    Mutation("sampling: Heun averages nothing", "_sampling.py", "v = (v + v_end) / 2", "v = v_end", "test_sampling.py"),
    Mutation("flow: another weight", "_flow.py", "return (1 + scale**3) / scale", "return (1 + scale**2) / scale",
             "test_flow.py"),
    Mutation("flow: strata are not shuffled", "_flow.py",
             "torch.rand(runs, strata, generator=generator).argsort(dim=1).flatten()[:n]",
             "torch.arange(strata).repeat(runs)[:n]", "test_flow.py"),
    Mutation("network: attention scale", "networks/blocks.py", "scaled_dot_product_attention(q, k, v)",
             "scaled_dot_product_attention(q, k, v, scale=1.0)", "test_estimator.py test_golden.py test_model.py"),
    Mutation("network: the time is not scaled", "networks/blocks.py", "_sinusoid(t * self.time_scale, self.ch)",
             "_sinusoid(t, self.ch)", "test_estimator.py test_golden.py test_model.py training"),
    Mutation("operator: the kernel is not centred", "operators/blur.py", "(-(h // 2), -(w // 2)), (-2, -1)",
             "(-(h // 2), -(w // 2) + 1), (-2, -1)", "operators"),
    Mutation("operator: the adjoint is not conjugate", "operators/blur.py",
             "return filtered(y, self.transfer(y).conj())", "return filtered(y, self.transfer(y))", "operators"),
    Mutation("operator: subsampling from another corner", "operators/subsample.py",
             "return x[..., :: self.factor, :: self.factor]",
             "return x[..., self.factor - 1 :: self.factor, self.factor - 1 :: self.factor]",
             "operators evaluation/test_protocol.py tasks test_tasks.py"),
    Mutation("conjugate gradients: looser", "operators/cg.py", "MAX_ITERATIONS = 500", "MAX_ITERATIONS = 5",
             "operators"),
    Mutation("tasks: noise is half as strong", "tasks/base.py", "measured.append(clean + self.sigma * noise)",
             "measured.append(clean + self.sigma / 2 * noise)", "tasks test_tasks.py evaluation"),
    Mutation("tasks: one seed for all images", "tasks/base.py", 'generator=generator_for(seed, i, "noise")',
             'generator=generator_for(seed, 0, "noise")', "tasks test_tasks.py"),
    Mutation("metrics: PSNR of another range", "metrics/_psnr.py", "(4 / mse)", "(1 / mse)", "metrics"),
    Mutation("metrics: conventions are one", "metrics/conventions.py", 'tables = convention == "tables"',
             "tables = True", "metrics evaluation"),
    Mutation("evaluation: fingerprints are ignored", "evaluation/run.py",
             "(task.name, method.label, method.fingerprint, i) not in done",
             "(task.name, method.label, i) not in {(a, b, d) for a, b, _, d in done}", "evaluation"),
    Mutation("evaluation: nothing is continued", "evaluation/run.py",
             "rows = read_rows(table, evaluation.files)", "rows = []", "evaluation"),
    Mutation("evaluation: one generator for all", "evaluation/run.py",
             'generator_for(evaluation.seed, i, "method") for i in chunk',
             'generator_for(evaluation.seed, 0, "method") for i in chunk', "evaluation"),
    Mutation("baselines: PnP-Flow without its exponent", "baselines/_pnp_flow.py", "(1 - t) ** alpha", "(1 - t)",
             "baselines/test_exact.py baselines/test_steps.py"),
    Mutation("baselines: Flower with one weight at all times", "baselines/_flower.py",
             "sigma**2 * (t**2 + (1 - t) ** 2) / (1 - t) ** 2", "sigma**2 / (1 - t) ** 2",
             "baselines/test_exact.py baselines/test_steps.py"),
    Mutation("baselines: OT-ODE without the Jacobian", "baselines/_ot_ode.py", "(u + (1 - t) * Ju)", "(u)",
             "baselines/test_exact.py baselines/test_steps.py"),
    Mutation("baselines: DiffPIR adds no fresh noise", "baselines/_diffpir.py", "zeta**0.5 * noise()", "0 * noise()",
             "baselines/test_exact.py baselines/test_steps.py"),
    Mutation("baselines: D-Flow with the other sign", "baselines/_d_flow.py",
             'return unlikely if sign == "corrected" else -unlikely', "return unlikely", "baselines/test_d_flow.py"),
    Mutation("baselines: L-BFGS remembers nothing", "baselines/_d_flow.py", "history=100", "history=1",
             "baselines/test_d_flow.py"),
    Mutation("baselines: I2SB forgets the seen pixels", "baselines/_i2sb.py",
             "return x if known is None else torch.where(known, degraded + level * eps, x)", "return x",
             "baselines/test_i2sb.py"),
    Mutation("baselines: ISTA-Net's symmetry counts for nothing", "training/unrolled.py", "SYMMETRY = 0.01",
             "SYMMETRY = 0.0", "baselines/test_ista_net.py"),
    Mutation("baselines: the gradient step is a plain network", "networks/gradient_step.py",
             "return N + pulled if wanted", "return N if wanted",
             "baselines/test_denoisers.py"),
]  # fmt: skip


def main(words: list[str]) -> int:
    """Try the mutations; returns 1 if one survived."""
    chosen = [m for m in MUTATIONS if not words or any(word in m.name for word in words)]
    survived, stale, start = [], [], time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        for name in ("src", "tests", "configs", "docs", "examples", "experiments", "baselines"):
            shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("pyproject.toml", "README.md", "Makefile", "constraints.txt"):
            shutil.copy(ROOT / name, copy / name)
        for number, mutation in enumerate(chosen, start=1):
            path = copy / "src" / "firm" / mutation.file
            text = path.read_text()
            if text.count(mutation.old) != 1:
                stale.append(mutation.name)
                result = f"its text occurs {text.count(mutation.old)} times"
            else:
                path.write_text(text.replace(mutation.old, mutation.new))
                noticed = _fails(copy, mutation.tests)
                path.write_text(text)
                result = "noticed" if noticed else "SURVIVED"
                if not noticed:
                    survived.append(mutation.name)
            print(f"{number:2d}/{len(chosen)} {result:9s} {mutation.name}", flush=True)
    done = len(chosen) - len(survived) - len(stale)
    print(f"{done} of {len(chosen)} noticed in {time.monotonic() - start:.0f} s")
    for what, names in (("survived", survived), ("no longer in the code", stale)):
        if names:
            print(f"{what}: {'; '.join(names)}")
    return int(bool(survived or stale))


def _fails(copy: Path, tests: str) -> bool:
    """Whether one of the tests fails on the copy."""
    paths = [str(copy / "tests" / name) for name in tests.split() if (copy / "tests" / name).exists()]
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *paths]
    environment = {**os.environ, "PYTHONPATH": str(copy / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True)
    failed = "FAILED" in done.stdout or "ERROR" in done.stdout  # stopped at the first one, pytest may end with 2
    if done.returncode and not failed:
        raise SystemExit(f"the tests could not be run:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
