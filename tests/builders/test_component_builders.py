import pytest

from object_detection.anchor_generators.grid import GridAnchorGenerator
from object_detection.box_coders.mean_stddev_box_coder import MeanStddevBoxCoder
from object_detection.builders import (
    anchor_generator_builder,
    box_coder_builder,
    matcher_builder,
    region_similarity_calculator_builder,
)
from object_detection.builders.oneof import build_oneof, missing_options
from object_detection.protos import (
    anchor_generator_pb2,
    box_coder_pb2,
    matcher_pb2,
    region_similarity_calculator_pb2,
)

# Builder, message, oneof, options that are not supported (and why).
ONEOFS = {
    'anchor_generator': (
        anchor_generator_builder,
        anchor_generator_pb2.AnchorGenerator,
        'anchor_generator_oneof',
        set(),
    ),
    'box_coder': (box_coder_builder, box_coder_pb2.BoxCoder, 'box_coder_oneof', set()),
    # The reference cannot build it under TensorFlow 2 either.
    'matcher': (matcher_builder, matcher_pb2.Matcher, 'matcher_oneof', {'bipartite_matcher'}),
    'region_similarity_calculator': (
        region_similarity_calculator_builder,
        region_similarity_calculator_pb2.RegionSimilarityCalculator,
        'region_similarity',
        set(),
    ),
}


@pytest.mark.parametrize('name', ONEOFS)
def test_every_option_is_built_or_rejected(name):
    builder, message, oneof, unsupported = ONEOFS[name]
    assert missing_options(message, oneof, builder.BUILDERS) == unsupported
    for field in message.DESCRIPTOR.oneofs_by_name[oneof].fields:
        config = message()
        getattr(config, field.name).SetInParent()
        if field.name in unsupported:
            with pytest.raises(ValueError, match=f'not supported.*Received: {field.name}'):
                builder.build(config)
        else:
            assert builder.build(config) is not None


@pytest.mark.parametrize('name', ONEOFS)
def test_an_option_must_be_set(name):
    builder, message, oneof, _ = ONEOFS[name]
    with pytest.raises(ValueError, match=rf'{message.DESCRIPTOR.full_name}.{oneof} is not set'):
        builder.build(message())


def test_build_oneof_passes_the_message_of_the_set_option():
    config = box_coder_pb2.BoxCoder()
    config.mean_stddev_box_coder.stddev = 0.5
    built = build_oneof(
        config, 'box_coder_oneof', {'mean_stddev_box_coder': lambda option: option.stddev}
    )
    assert built == 0.5


def test_objects_are_of_the_named_class():
    config = box_coder_pb2.BoxCoder()
    config.mean_stddev_box_coder.SetInParent()
    assert isinstance(box_coder_builder.build(config), MeanStddevBoxCoder)
    config = anchor_generator_pb2.AnchorGenerator()
    config.grid_anchor_generator.SetInParent()
    assert isinstance(anchor_generator_builder.build(config), GridAnchorGenerator)
