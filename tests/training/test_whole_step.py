"""A training step is one XLA program of fixed shapes, of which nothing is left outside."""

import re

import keras
import pytest
from google.protobuf import text_format

from object_detection.core.fields import InputFields
from object_detection.optimizers import schedules
from object_detection.optimizers.gradients import Execution
from object_detection.optimizers.moving_averages import Averaging
from object_detection.optimizers.optimizers import Momentum
from object_detection.protos.model_pb2 import DetectionModel
from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig
from object_detection.training import setup, step
from object_detection.training.monitoring import step_program
from tests.meta_architectures.ssd import configs
from tests.training import fakes, step_runs

BATCH = 2
# Everything that a step may do with gradients.
TRAINING = """
train_config {
  batch_size: 2
  gradient_clipping_by_norm: 1.0
  optimizer {
    momentum_optimizer {
      learning_rate {
        cosine_decay_learning_rate { learning_rate_base: 0.04 total_steps: 9 warmup_steps: 2 }
      }
    }
    use_moving_average: true
  }
}
"""
TWO_STAGES = 'model { faster_rcnn { number_of_stages: 2 } }'


def make_step(*overrides: str, model: DetectionModel | None = None) -> step.TrainStep:
    """Builds the step of a tiny detector as a training does; by default of a Mask R-CNN."""
    pipeline = TrainEvalPipelineConfig(model=model or step_runs.tiny_recipe().model)
    for part in (TRAINING, *overrides):
        text_format.Merge(part, pipeline)
    (batch,) = step_runs.batches(BATCH)
    if model is not None:
        del batch[InputFields.GROUNDTRUTH_INSTANCE_MASK_CROPS]
    keras.utils.set_random_seed(0)
    detector = setup.build_detector(pipeline)
    spec = step_runs.element_spec(batch)
    return setup.build_step(pipeline.train_config, detector, spec, seed=3)


def check(train_step: step.TrainStep) -> str:
    """Checks the program of a step; returns it."""
    text = train_step.lower()
    assert step_program.dynamic_shapes(text) == []
    assert step_program.host_operations(text) == []
    # Losses and gradients are in it, and what it returns includes all that it changes.
    counts = step_program.count_operations(text)
    assert counts['convolution'] > 0
    state = train_step.optimizer_state()
    changed = len(train_step.optimizer.variables) + sum(len(slots) for slots in state.values())
    assert num_outputs(text) >= changed
    return text


def num_outputs(text: str) -> int:
    layout = re.match(r'HloModule .*?->\((.*)\)\}', text)
    return len(re.findall(r'\w+\[', layout[1]))


# The step of a single-shot detector, below, is part of the default run.
@pytest.mark.slow
@pytest.mark.parametrize(
    'overrides',
    [(TWO_STAGES,), (), (TWO_STAGES, 'graph_rewriter { quantization { delay: 5 } }')],
    ids=['faster_rcnn', 'mask_rcnn', 'quantized'],
)
def test_the_whole_step_is_one_program_of_fixed_shapes(overrides):
    train_step = make_step(*overrides)
    check(train_step)


@pytest.mark.slow
def test_the_whole_step_of_a_single_shot_detector():
    check(make_step(model=configs.tiny('num_classes: 4')))


@pytest.mark.slow
@pytest.mark.parametrize(
    'changes',
    [
        """loss { hard_example_miner { num_hard_examples: 9 max_negatives_per_positive: 3 }
          classification_loss { weighted_sigmoid {} } }""",
        'matcher { bipartite_matcher {} }',
        'loss { random_example_sampler { positive_sample_fraction: 0.5 } }',
        'loss { expected_loss_weights: EXPECTED_SAMPLING }',
        'use_confidences_as_targets: true implicit_example_weight: 0.5',
        'freeze_batchnorm: true normalize_loc_loss_by_codesize: true',
    ],
    ids=['miner', 'bipartite', 'sampler', 'expectation', 'confidences', 'frozen'],
)
def test_options_of_a_single_shot_detector_leave_no_dynamic_shape(changes):
    check(make_step(model=configs.tiny(f'num_classes: 4 {changes}')))


@pytest.mark.slow
@pytest.mark.parametrize(
    'override',
    [
        'train_config { gradient_accumulation_steps: 2 }',
        'train_config { precision: MIXED_BFLOAT16 }',
        'graph_rewriter { quantization { delay: 5 } }',
    ],
    ids=['parts', 'bfloat16', 'quantized'],
)
def test_trainings_of_a_single_shot_detector_leave_no_dynamic_shape(override):
    check(make_step(override, model=configs.tiny('num_classes: 4')))


@pytest.mark.slow
@pytest.mark.parametrize(
    'override',
    [
        'train_config { gradient_accumulation_steps: 2 }',
        'train_config { precision: MIXED_BFLOAT16 }',
        'train_config { precision: MIXED_FLOAT16 loss_scale { dynamic {} } }',
        """model { faster_rcnn {
          use_static_shapes: false first_stage_outside_anchors: PRUNE
          first_stage_pre_nms_topk_per_level: 0 first_stage_max_proposals_per_level: 0 } }""",
        """model { faster_rcnn { second_stage_add_gt_as_proposals: false
          hard_example_miner { num_hard_examples: 8 max_negatives_per_positive: 3 } } }""",
        'model { faster_rcnn { first_stage_matcher { bipartite_matcher {} } } }',
        'model { faster_rcnn { pad_mask_rois: false } }',
    ],
    ids=['parts', 'bfloat16', 'float16', 'prune', 'miner', 'bipartite', 'mask_rows'],
)
def test_options_leave_no_dynamic_shape(override):
    train_step = make_step(override)
    check(train_step)


def test_a_compiled_step_leaves_nothing_outside_of_its_program():
    data = fakes.dataset(4, 4)
    detector = fakes.FakeDetector()
    detector.build_variables()
    train_step = step.TrainStep(
        detector,
        Averaging(Momentum(schedules.constant(0.1), momentum=0.9), decay=0.5),
        element_spec=data.element_spec,
        clip_norm=1.0,
        execution=Execution(jit_compile=True),
    )
    graph = train_step._untimed.get_concrete_function().graph
    types = {operation.type for operation in graph.get_operations()}
    # The call of the program; what counts the steps and returns the results.
    assert types <= {
        *('Placeholder', 'Const', 'Identity', 'NoOp', 'StatefulPartitionedCall'),
        *('ReadVariableOp', 'AssignAddVariableOp', 'ConcatV2'),
    }, types
