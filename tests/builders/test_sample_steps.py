from google.protobuf.descriptor import FieldDescriptor

from object_detection.builders import preprocessor_builder, training_rules
from object_detection.protos.input_reader_pb2 import InputReader
from object_detection.protos.preprocessor_pb2 import PreprocessingStep
from tests import rows

OPTIONS = PreprocessingStep.DESCRIPTOR.oneofs_by_name['preprocessing_step'].fields


def test_all_steps_in_the_order_of_their_numbers():
    kinds = preprocessor_builder.kinds()
    numbers = {option.name: option.number for option in OPTIONS}
    assert [numbers[kind] for kind in kinds] == sorted(numbers[kind] for kind in kinds)
    assert set(kinds) == set(preprocessor_builder.AUGMENTATIONS)
    assert set(preprocessor_builder.FIELDS) <= set(numbers)


@rows.parametrize('kind', preprocessor_builder.kinds())
def test_every_step_can_be_built_with_its_fields(kind):
    preprocessor_builder.build(preprocessor_builder.build_sample_steps(kind))


def test_other_fields():
    step = preprocessor_builder.build_sample_steps('adjust_gamma', {'adjust_gamma': 'gamma: 3'})
    assert step.adjust_gamma.gamma == 3
    assert preprocessor_builder.build_sample_steps('adjust_gamma', {}).adjust_gamma.gamma == 1


@rows.parametrize('kind', preprocessor_builder.kinds())
def test_facts_of_steps_name_fields(kind):
    step = preprocessor_builder.build_sample_steps(kind)
    facts = training_rules.step_facts(step)
    if facts.needs:
        assert InputReader.DESCRIPTOR.fields_by_name[facts.needs].type == FieldDescriptor.TYPE_BOOL
    if facts.permutation:
        assert list(getattr(getattr(step, kind), facts.permutation)) == []
    assert facts.permutation or not (facts.mirrors or facts.exchanges_sides)
