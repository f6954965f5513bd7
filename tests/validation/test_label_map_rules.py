"""Label maps of the training and of the evaluation."""

import pytest

from object_detection.validation import label_map_rules
from tests import rows
from tests.validation.pipelines import sound_pipeline


@pytest.fixture
def pair(tmp_path):
    """Returns a function that writes two label maps, and gives problems and warnings of them."""

    def compare(trained, evaluated):
        pipeline = sound_pipeline(tmp_path)
        for name, classes in (('train', trained), ('eval', evaluated)):
            path = tmp_path / f'{name}.pbtxt'
            path.write_text(''.join(f'item {{ id: {i} {c} }}' for i, c in classes.items()))
        pipeline.train_input_reader.label_map_path = str(tmp_path / 'train.pbtxt')
        pipeline.eval_input_reader[0].label_map_path = str(tmp_path / 'eval.pbtxt')
        return list(label_map_rules.check(pipeline)), list(label_map_rules.warnings(pipeline))

    return compare


def test_swapped_classes(pair):
    problems, warnings = pair({1: "name: 'cube'", 2: "name: 'ball'"}, {1: "name: 'ball'"})
    assert not warnings
    (problem,) = problems
    assert problem.startswith('eval_input_reader[0].label_map_path: expected the ids of')
    assert "id 1 is 'cube' there and 'ball' here" in problem


def test_other_names(pair):
    problems, warnings = pair({1: "name: 'cube'"}, {1: "name: 'Wuerfel'", 2: "name: 'x'"})
    assert not problems
    assert "id 1 is 'cube' there and 'Wuerfel' here" in warnings[0]


@rows.parametrize(
    'evaluated',
    [
        {1: "name: 'cube'"},
        {1: "name: 'Cube '", 2: "name: 'ball'"},
        {1: "name: '/m/1' display_name: 'cube'"},
    ],
)
def test_the_same_classes(pair, evaluated):
    assert pair({1: "name: 'cube'", 2: "name: 'ball'"}, evaluated) == ([], [])


def test_a_label_map_of_the_training_that_an_eval_job_lacks(tmp_path):
    pipeline = sound_pipeline(tmp_path)
    pipeline.train_input_reader.label_map_path = 'elsewhere.pbtxt'
    assert list(label_map_rules.check(pipeline)) == []
