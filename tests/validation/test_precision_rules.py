"""What goes with which precision, as `train_config` says."""

from google.protobuf import text_format

from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig
from object_detection.validation import train_config as train_config_rules
from tests import rows


def problems(text: str) -> list[str]:
    pipeline = TrainEvalPipelineConfig()
    text_format.Parse(text, pipeline.train_config)
    return [p for p in train_config_rules.check(pipeline) if 'precision' in p or 'loss_scale' in p]


@rows.parametrize(
    'text',
    [
        'precision: MIXED_FLOAT16',
        'precision: MIXED_FLOAT16 loss_scale { dynamic {} }',
        'precision: MIXED_FLOAT16 loss_scale { dynamic { initial: 1 growth_steps: 1 } }',
        'precision: MIXED_FLOAT16 loss_scale { static: 0.5 }',
        'precision: BFLOAT16 precision_exempt_patterns: "^rpn/"',
        'precision: FLOAT32 precision_exempt_patterns: "^rpn/"',
    ],
)
def test_what_may_be(text):
    assert problems(text) == []


@rows.parametrize(
    ('text', 'message'),
    [
        (
            'loss_scale { static: 8 }',
            'with it; gradients of other precisions need none. Received: FLOAT32.',
        ),
        ('precision: BFLOAT16 loss_scale { dynamic {} }', 'Received: MIXED_BFLOAT16.'),
        ('precision: MIXED_FLOAT16 loss_scale {}', 'kind is not set; expected dynamic or static.'),
        ('precision: TF32 precision_exempt_patterns: "a"', 'all layers or none. Received: TF32.'),
        (
            'precision: BFLOAT16 precision_exempt_patterns: "a" precision_exempt_patterns: "("',
            'precision_exempt_patterns[1]: expected a regular expression.',
        ),
    ],
)
def test_what_may_not(text, message):
    (found,) = problems(text)
    assert message in found
