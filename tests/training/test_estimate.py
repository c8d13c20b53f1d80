"""What is compiled beforehand is what training calls."""

import subprocess
from types import SimpleNamespace

import pytest
import torch

import firm
from firm._util.machine import Ranks
from firm.acceleration.compiled import _Input, compile_blocks, compile_signature, signatures
from firm.training.config import load_config
from firm.training.estimate import compile_beforehand
from firm.training.step import Velocity

RANK = Ranks(0, 1, torch.device("cpu"))
NETWORK = "network={ch: 8, mult: [1, 2], blocks: 2, attention: [4], groups: 4, unshuffle: 2, noise_level: true}"


def called(module, inputs):
    kind = f"{type(module).__name__} {[tuple(p.shape) for p in module.parameters()]}"
    given = (None if v is None else _Input(tuple(v.shape), v.stride(), v.dtype, v.requires_grad) for v in inputs)
    return kind, tuple(given)


@pytest.mark.parametrize("bf16", ["false", "true"])
@pytest.mark.parametrize("warm", [0, 1])
def test_the_signatures_are_those_of_training(make_trainer, bf16, warm):
    trainer = make_trainer(NETWORK, f"bf16={bf16}", f"warm_start_epochs={warm}", "output=correction")
    config = trainer.config
    seen = set()
    for module in trainer.net.modules():
        if getattr(module, "compiled_alone", False):
            module.register_forward_pre_hook(lambda m, inputs: seen.add(called(m, inputs)))
    trainer.advance()
    net = firm.UNet(**config.network_arguments()[1]).to(memory_format=torch.channels_last)
    found = set(signatures(net, Velocity(config).inputs(config.batch_size, "cpu"), config.bf16))
    assert seen <= found
    assert len(found) - len(seen) <= (1 if warm else 0)  # a warm start has no gradient to x^{k+1}


@pytest.mark.filterwarnings("ignore")
def test_every_signature_runs_forward_and_backward(make):
    config = make(NETWORK.replace("blocks: 2", "blocks: 1"))
    net = firm.UNet(**config.network_arguments()[1]).to(memory_format=torch.channels_last)
    found = signatures(net, Velocity(config).inputs(2, "cpu"), config.bf16)
    compile_blocks(net, backend="aot_eager")
    for signature, module in found.items():
        compile_signature(signature, module, bf16=True)
    assert all(p.grad is not None for m in found.values() for p in m.parameters())


def test_compiling_beforehand_only_where_it_helps(make, monkeypatch, capsys):
    """In as many processes as are asked for; one that fails is told of, and costs only time."""
    compiled, code = [], 0

    def start(command, **_):
        compiled.append((load_config(command[-4]), command[-3:]))
        return SimpleNamespace(wait=lambda: code)

    monkeypatch.setattr(subprocess, "Popen", start)
    gpu, config = torch.device("cuda:1"), make(NETWORK, "batch_size=12", "compile_workers=3")
    compile_beforehand(config, RANK)  # a CPU
    compile_beforehand(config, Ranks(0, 2, gpu))  # several processes
    compile_beforehand(make(NETWORK, "compile=false"), Ranks(0, 1, gpu))
    compile_beforehand(make(NETWORK, "compile_workers=0"), Ranks(0, 1, gpu))
    assert not compiled
    compile_beforehand(config, Ranks(0, 1, gpu))
    assert compiled == [(config, ["cuda:1", str(i), "3"]) for i in range(3)]
    assert capsys.readouterr().out == ""
    code = 1
    compile_beforehand(config, Ranks(0, 1, gpu))
    assert "as they come" in capsys.readouterr().out


def test_nothing_is_compiled_beforehand_where_an_operator_is_an_input():
    config = load_config(None, ["objective=unrolled", "task=deblurring", "network={phases: 1, features: 2}", "size=32"])
    objective = config.objective_class(config)
    assert signatures(objective.build(), objective.inputs(2, "cpu"), False) == {}
