"""Configs are compared by what they say, not by how they are written."""

import re

from object_detection.reporting.run_files import difference


def changed(text):
    """The lines that are added or removed."""
    return re.findall('<span class="(?:added|removed)">(.*?)</span>', text)


def test_the_form_of_a_config_makes_no_difference():
    base = 'model { ssd { num_classes: 3 } } # one line\ntrain_config { num_steps: 5 }'
    config = 'train_config {\n  num_steps: 6\n}\nmodel {\n  ssd: {\n    num_classes: 3\n  }\n}\n'
    assert changed(difference(base, config, 'a')) == ['-  num_steps: 5', '+  num_steps: 6']
    assert difference(base, base.replace(' }', '\n}'), 'a') == '<p class="note">None from a.</p>'


def test_defaults_that_are_comments_are_not_shown():
    configs = [f'train_config {{ num_steps: {n} }}' for n in (5, 6)]
    assert '#' not in difference(*configs, 'a').replace('&#', '')


def test_texts_that_are_no_configs_are_compared_by_line():
    assert changed(difference('a: <1>\nb', 'a: 2 # c\nb', 'x')) == ['-a: &lt;1&gt;', '+a: 2']
