import pytest
import torch

torch.set_num_threads(1)  # two pytest workers on two cores


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)
