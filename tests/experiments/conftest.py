import pytest
from study_helpers import make_data


@pytest.fixture(scope="session")
def root(tmp_path_factory):
    """Two small data sets, a small model and networks of the baselines; what studies write lies beside them."""
    return make_data(tmp_path_factory.mktemp("studies"))
