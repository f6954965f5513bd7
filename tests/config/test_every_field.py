"""No field of the schema is ignored in silence: it is read somewhere, or marked."""

import ast
import collections
import pathlib

import pytest

import object_detection
from object_detection.config import overrides, walk
from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig
from tests.schema import is_unread, schema_fields, unread_fields

PACKAGE = pathlib.Path(object_detection.__file__).parent
# The parts that see protos. Of `config`, most checks fields, and nothing happens by that alone.
READERS = (
    *(
        'builders',
        'meta_architectures',
        'cli',
        'config/families.py',
        'core/determinism.py',
        # Names the fields that the builder of flips reads.
        'data/augmentation/symmetry.py',
        'data/label_map.py',
    ),
    *('export', 'models/precision*.py', 'optimizers', 'system', 'training', 'visualization'),
    *('weights', '*.py'),
)
# Their builders copy the fields of a dataclass from the message, name by name.
COPIED = ('core/post_processing.py', 'data/augmentation/**/*.py')
# Unread fields that code of its own looks at, only to refuse them.
REFUSED = {
    'parameterized_metric',
}
# Names of such fields that are attributes of other things too: the operation of a tensor.
OTHER_THINGS = {'op', 'resize_masks'}
# The marked fields that the test below looks for, by their message: no other field has their name.
ALONE = {
    'BatchNonMaxSuppression': ('use_partitioned_nms',),
    'CenterNet': ('compute_heatmap_sparse',),
    'ConvolutionalBoxPredictor': ('apply_sigmoid_to_scores',),
    'EvalConfig': (
        'eval_instance_masks',
        'eval_interval_secs',
        'eval_master',
        'ignore_groundtruth',
        'max_evals',
        'retain_original_image_additional_channels',
        'save_graph',
        'use_dummy_loss_in_eval',
        'use_moving_averages',
    ),
    'FasterRcnn': (
        'resize_masks',
        'use_combined_nms_in_first_stage',
        'use_partitioned_nms_in_first_stage',
    ),
    'Hyperparams': ('op',),
    'InputReader': (
        'external_input_reader',
        'include_source_id',
        'min_after_dequeue',
        'num_parallel_batches',
        'num_parallel_map_calls',
        'prefetch_size',
        'queue_capacity',
        'use_display_name',
    ),
    'Loss.EqualizationLoss': ('exclude_prefixes',),
    'PreprocessingStep': ('scale_boxes_to_pixel_coordinates',),
    'Ssd': ('mask_head_config',),
    'TrainConfig': (
        'batch_queue_capacity',
        'fine_tune_checkpoint_version',
        'num_batch_queue_threads',
        'prefetch_queue_capacity',
        'replicas_to_aggregate',
        'run_fine_tune_checkpoint_dummy_computation',
        'startup_delay_steps',
        'summarize_gradients',
        'sync_replicas',
        'unpad_groundtruth_tensors',
    ),
    'XYPairs': ('training_data_type',),
}


def names_in_code() -> set[str]:
    """Attribute names and strings in the code that may read fields."""
    names = {
        node.target.id
        for pattern in COPIED
        for path in PACKAGE.glob(pattern)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    for pattern in READERS:
        for path in PACKAGE.glob(pattern if pattern.endswith('.py') else f'{pattern}/**/*.py'):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Attribute):
                    names.add(node.attr)
                elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                    names.add(node.value)
    return names


def test_every_field_is_read_or_marked():
    read = names_in_code()
    forgotten = [
        walk.field_key(field)
        for field in schema_fields(skip=is_unread)
        if field.name not in read and not is_unread(field)
    ]
    assert not forgotten, (
        'Nothing reads these fields; read them, or give the reason as the option (ignored) or '
        f'(refused): {sorted(forgotten)}'
    )


def test_nothing_reads_the_marked_fields():
    names = collections.Counter(field.name for field in schema_fields())
    # Of a name that two messages share, it is not known which field the code reads.
    listed = {key for key in unread_fields() if names[key.split('.')[-1]] == 1}
    assert listed == {f'{owner}.{name}' for owner, names in ALONE.items() for name in names}
    in_code = names_in_code() - REFUSED - OTHER_THINGS
    read = {key for key in listed if key.split('.')[-1] in in_code}
    assert not read, (
        f'These fields are read; remove their options (ignored) and (refused): {sorted(read)}'
    )


def test_no_mark_is_below_another():
    reachable = {walk.field_key(field) for field in schema_fields(skip=is_unread)}
    assert unread_fields().keys() - reachable == set()


@pytest.mark.parametrize('key', unread_fields())
def test_reasons_are_complete(key):
    options = unread_fields()[key]
    reason = options.ignored or options.refused
    assert not (options.ignored and options.refused)
    assert len(reason.split()) > 2
    assert not reason.endswith('.')  # The sentence around it ends it.


def test_all_messages_are_walked():
    root = TrainEvalPipelineConfig.DESCRIPTOR
    entries = {m.full_name for m in overrides.reachable_messages(root)}
    owners = {field.containing_type.full_name for field in schema_fields()}
    fieldless = {m.full_name for m in overrides.reachable_messages(root) if not m.fields}
    maps = {m.full_name for m in overrides.reachable_messages(root) if m.GetOptions().map_entry}
    assert owners == entries - fieldless - maps
