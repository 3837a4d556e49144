import pytest

from dasp.core.errors import OptionError
from dasp.models import load_model


def test_an_unknown_model_names_the_trained_ones_too():
    with pytest.raises(OptionError, match="did you mean 'sounding_shapes_0'"):
        load_model("sounding_shape_0")
