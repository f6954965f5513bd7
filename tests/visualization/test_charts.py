import re

import numpy as np

from object_detection.visualization import charts


def test_logarithmic_axes_have_short_numbers():
    svg = charts.histogram(np.array([2.0**-16, 2.0**10]), x_label='size', is_log=True)
    labels = re.findall(r'<text[^>]*>([0-9][^<]*)<', svg)
    assert {'3.05e-05', '0.0156', '1', '64', '512'} <= {*labels}
    svg = charts.scatter(
        np.array([2.0, 5000]), np.array([2.0**-7, 900]), x_label='width', y_label='height'
    )
    labels = re.findall(r'<text[^>]*>([0-9][^<]*)<', svg)
    assert {'0.0156', '4', '4096'} <= {*labels}
