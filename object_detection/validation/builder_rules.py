"""What the builders object to: rules that load TensorFlow, for when nothing cheaper is wrong."""

import importlib
from collections.abc import Iterator

from google.protobuf.message import Message

from object_detection.config import walk
from object_detection.protos.faster_rcnn_pb2 import FasterRcnn
from object_detection.protos.model_pb2 import DetectionModel
from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig
from object_detection.system import tensorflow_setup
from object_detection.validation import eval_config as eval_config_rules
from object_detection.validation.models import faster_rcnn as model_rules

_GROUP_NORM = 'Hyperparams.group_norm'


def check_model(pipeline: TrainEvalPipelineConfig) -> Iterator[str]:
    """Yields what the builders of the cheap parts of the model object to."""
    tensorflow_setup.import_tensorflow()
    from object_detection.builders import hyperparams_builder

    config, root = pipeline.model.faster_rcnn, model_rules.ROOT
    problems = list(hyperparams_builder.problems(pipeline.model, 'model'))
    yield from problems
    if problems:
        return  # The other builders would tell the first of them once more.
    problems = list(_parts(config, root))
    yield from problems
    if not problems:
        yield from _group_norms(pipeline.model)


def _group_norms(model: DetectionModel) -> Iterator[str]:
    """Yields a group norm that does not fit its layers, which are built without their weights."""
    norms = [found for found in walk.set_fields(model, path='model') if found.key == _GROUP_NORM]
    if not norms:
        return
    import tensorflow as tf

    from object_detection.builders import model_builder

    try:
        # Variables of a graph get no values.
        with tf.Graph().as_default():
            model_builder.build(model).build_variables()
    except ValueError as error:
        message = str(error)
        fitting = [found.path for found in norms if f'Received: {found.value.groups}.' in message]
        yield f'{" or ".join(fitting) or model_rules.ROOT}: {message}'


def _parts(config: FasterRcnn, root: str) -> Iterator[str]:
    """Yields what the builders of the parts object to."""
    yield from _builds('image_resizer', config.image_resizer, f'{root}.image_resizer')
    path = f'{root}.feature_extractor'
    yield from _builds('feature_extractor', config.feature_extractor, path, function='check')
    path = f'{root}.first_stage_anchor_generator'
    yield from _builds('anchor_generator', config.first_stage_anchor_generator, path)
    yield from _builds('faster_rcnn.rpn', config, root, function='check')
    if config.number_of_stages > 1:
        path = f'{root}.second_stage_post_processing'
        yield from _builds('post_processing', config.second_stage_post_processing, path)
        yield from _losses(config, root)
        yield from _builds('faster_rcnn.second_stage', config, root, function='check')
        path = f'{root}.second_stage_box_predictor'
        predictor = config.second_stage_box_predictor
        yield from _builds('box_predictor', predictor, path, config.num_classes)
        head = predictor.mask_rcnn_box_predictor
        if head.HasField('box_head'):
            path = f'{path}.mask_rcnn_box_predictor.box_head'
            yield from _builds('box_predictor', head, path, function='build_box_classifier')


def _losses(config: FasterRcnn, root: str) -> Iterator[str]:
    """Yields what the builders of the second stage's losses object to."""
    loss, path = config.second_stage_classification_loss, f'{root}.second_stage_classification_loss'
    yield from _builds('losses', loss, path, function='build_second_stage_classification')
    if config.HasField('hard_example_miner'):
        yield from _builds(
            'losses',
            config.hard_example_miner,
            f'{root}.hard_example_miner',
            loss,
            config.second_stage_classification_loss_weight,
            config.second_stage_localization_loss_weight,
            function='build_hard_example_miner',
        )


def check_training(pipeline: TrainEvalPipelineConfig) -> Iterator[str]:
    """Yields what the builders of optimizer and augmentation object to."""
    config = pipeline.train_config
    path = 'train_config.optimizer'
    yield from _builds('optimizer', config.optimizer, path, function='check')
    for index, step in enumerate(config.data_augmentation_options):
        path = f'train_config.data_augmentation_options[{index}]'
        yield from _builds('preprocessor', step, path)


def check_evaluation(pipeline: TrainEvalPipelineConfig) -> Iterator[str]:
    """Yields what the evaluators, made for the classes of each reader, object to."""
    from object_detection.builders import evaluator_builder  # loads the COCO engine

    config = pipeline.eval_config
    unknown = [name for name in config.metrics_set if name not in evaluator_builder.IOU_TYPES]
    if unknown:
        yield (
            f'eval_config.metrics_set: expected some of {", ".join(evaluator_builder.IOU_TYPES)}. '
            f'Received: {", ".join(unknown)}.'
        )
        return
    for index, reader in enumerate(pipeline.eval_input_reader):
        path = f'eval_config, with the names of eval_input_reader[{index}].label_map_path'
        categories = evaluator_builder.categories(reader, pipeline.model)
        problems = list(_builds('evaluator', config, path, categories))
        yield from problems
        if problems:
            return
    known = {
        name: evaluator_builder.metric_names(pipeline, index)
        for index, name in enumerate(eval_config_rules.reader_names(pipeline))
    }
    yield from eval_config_rules.check_metrics(pipeline, known)


def _builds(
    concept: str, config: Message, path: str, *arguments: object, function: str = 'build'
) -> Iterator[str]:
    """Tries the builder of one part, whose objects are cheap; yields what it objects to."""
    tensorflow_setup.import_tensorflow()
    builder = importlib.import_module(f'object_detection.builders.{concept}_builder')
    try:
        getattr(builder, function)(config, *arguments)
    except ValueError as error:
        message, own = str(error), config.DESCRIPTOR.full_name
        if message.startswith(own):
            message = path + message.removeprefix(own)
        elif not message.startswith(path):
            message = f'{path}: {message}'
        yield message.replace(f'{config.DESCRIPTOR.file.package}.', '')
