import pytest
from helpers import save_pictures

import firm
from evaluation_helpers import SIZE
from firm.data import load_images
from firm.evaluation import Evaluation


@pytest.fixture(scope="session")
def pictures(tmp_path_factory):
    return save_pictures(tmp_path_factory.mktemp("pictures"), 3, (20, 20))


@pytest.fixture
def evaluation(pictures):
    """Denoising of the three pictures."""
    images = load_images("folder", pictures, size=SIZE, progress=False)
    return Evaluation(images, [firm.Task("denoising", SIZE)])
