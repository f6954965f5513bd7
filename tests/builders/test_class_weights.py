import pytest
from google.protobuf import text_format

from object_detection.builders import training_rules
from object_detection.errors import ConfigError
from object_detection.protos.train_pb2 import TrainConfig


@pytest.fixture
def label_map(tmp_path):
    path = tmp_path / 'label_map.pbtxt'
    path.write_text("item { id: 1 name: 'a' } item { id: 2 name: 'b' display_name: 'Bee' }")
    return str(path)


def parse(*entries):
    text = ''.join(f'class_weight {{ {entry} }}' for entry in entries)
    return text_format.Parse(text, TrainConfig()).class_weight


@pytest.mark.parametrize(
    ('entries', 'weights'),
    [
        ([], ()),
        (["name: 'b' weight: 0"], (1.0, 0.0)),
        (['id: 2 weight: 3', "name: 'a' weight: 0.5"], (0.5, 3.0)),
        (["name: 'Bee' weight: 2"], (1.0, 2.0)),
    ],
)
def test_weights_are_in_the_column_of_their_class(label_map, entries, weights):
    assert training_rules.class_weights(parse(*entries), label_map, 2) == weights


def test_ids_need_no_label_map_and_names_do():
    assert training_rules.class_weights(parse('id: 1 weight: 4'), '', 3) == (4.0, 1.0, 1.0)
    with pytest.raises(ConfigError, match=r'class_weight\[1\]\.name: expected train_input_reader'):
        training_rules.class_weights(parse('id: 1 weight: 4', "name: 'b' weight: 4"), '', 3)


@pytest.mark.parametrize(
    ('entries', 'message'),
    [
        (["name: 'dog' weight: 1"], '[0].name: expected a class of train_input_reader.label_map_p'),
        (["name: 'aa' weight: 1"], "such as a, b, Bee, c. Received: 'aa', did you mean 'a'?"),
        (
            ['id: 3 weight: 1'],
            '[0].id: expected a class with an id of 1 to 2 (num_classes). Received: 3.',
        ),
        (
            ['id: 0 weight: 1'],
            '[0].id: expected a class with an id of 1 to 2 (num_classes). Received: 0.',
        ),
        (["name: 'c' weight: 1"], '[0].name: expected a class with an id of 1 to 2 (num_classes).'),
        (['weight: 1'], '[0]: expected a name or an id of a class. Received: neither.'),
        (['id: 1'], '[0].weight is not set; expected 0 or more.'),
        (['id: 1 weight: -1'], '[0].weight: expected at least 0. Received: -1.'),
        (['id: 1 weight: nan'], '[0].weight: expected a finite number, at least 0. Received: nan.'),
        (
            ['id: 1 weight: 2', "name: 'a' weight: 2"],
            '[1]: expected one entry a class. Received: another one for the class of '
            'train_config.class_weight[0].',
        ),
        (['id: 1 weight: 0', 'id: 2 weight: 0'], ': expected a class with a weight above 0.'),
    ],
)
def test_what_is_wrong_with_an_entry(label_map, entries, message):
    with open(label_map, 'a') as file:
        file.write("item { id: 3 name: 'c' }")
    (problem,) = training_rules.class_weight_problems(parse(*entries), label_map, 2)
    assert problem.startswith('train_config.class_weight')
    assert message in problem
    with pytest.raises(ConfigError) as caught:
        training_rules.class_weights(parse(*entries), label_map, 2)
    assert str(caught.value) == problem


def test_a_bad_label_map_is_reported_by_its_own_rule(tmp_path):
    path = tmp_path / 'label_map.pbtxt'
    path.write_text('item {')
    entries = parse("name: 'b' weight: 0")
    assert list(training_rules.class_weight_problems(entries, str(path), 2)) == []
    with pytest.raises(ValueError, match='is not a label map'):
        training_rules.class_weights(entries, str(path), 2)
