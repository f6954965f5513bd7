"""Rules that call the builders and load TensorFlow, applied after the cheaper rules passed."""

from collections.abc import Iterator

from object_detection.builders import families
from object_detection.config import walk
from object_detection.meta_architectures.tracing import problems as builder_problems
from object_detection.protos.model_pb2 import DetectionModel
from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig
from object_detection.system import tensorflow_setup
from object_detection.validation import eval_config as eval_config_rules
from object_detection.validation.models import families as model_rules

_GROUP_NORM = 'Hyperparams.group_norm'


def check_model(pipeline: TrainEvalPipelineConfig) -> Iterator[str]:
    """Yields the errors of the builders of those model components that are cheap to build."""
    tensorflow_setup.import_tensorflow()
    from object_detection.builders import hyperparams_builder

    problems = list(hyperparams_builder.problems(pipeline.model, 'model'))
    yield from problems
    if problems:
        return  # The other builders would report the first of them once more.
    rules = model_rules.find(pipeline.model)
    problems = list(rules.check_parts(families.options(pipeline.model))) if rules else []
    yield from problems
    if not problems:
        yield from _group_norms(pipeline.model)
        yield from _quantization(pipeline)


def _group_norms(model: DetectionModel) -> Iterator[str]:
    """Yields a problem if a group norm does not fit its layers, built here without weights."""
    norms = [found for found in walk.set_fields(model, path='model') if found.key == _GROUP_NORM]
    if not norms:
        return
    import tensorflow as tf

    from object_detection.builders import model_builder

    try:
        # In a graph, variables are created without values.
        with tf.Graph().as_default():
            model_builder.build(model).build_variables()
    except ValueError as error:
        message = str(error)
        fitting = [found.path for found in norms if f'Received: {found.value.groups}.' in message]
        yield f'{" or ".join(fitting) or families.path(model)}: {message}'


def _quantization(pipeline: TrainEvalPipelineConfig) -> Iterator[str]:
    """Yields a problem if layers of the model cannot be quantized."""
    if not pipeline.graph_rewriter.HasField('quantization'):
        return
    from object_detection.meta_architectures import detector

    try:
        detector.check_quantization(pipeline)
    except ValueError as error:
        yield str(error)


def check_training(pipeline: TrainEvalPipelineConfig) -> Iterator[str]:
    """Yields the errors of the builders of the optimizer and the augmentation."""
    tensorflow_setup.import_tensorflow()
    from object_detection.builders import optimizer_builder, preprocessor_builder

    config = pipeline.train_config
    path = 'train_config.optimizer'
    yield from builder_problems(optimizer_builder.check, config.optimizer, path)
    for index, step in enumerate(config.data_augmentation_options):
        path = f'train_config.data_augmentation_options[{index}]'
        yield from builder_problems(preprocessor_builder.build, step, path)


def check_evaluation(pipeline: TrainEvalPipelineConfig) -> Iterator[str]:
    """Yields the errors of the evaluators, built for the classes of each reader."""
    tensorflow_setup.import_tensorflow()
    from object_detection.builders import evaluator_builder  # loads the COCO engine

    config = pipeline.eval_config
    for index, reader in enumerate(pipeline.eval_input_reader):
        path = f'eval_config, with the names of eval_input_reader[{index}].label_map_path'
        categories = evaluator_builder.categories(reader, pipeline.model)
        problems = list(builder_problems(evaluator_builder.build, config, path, categories))
        yield from problems
        if problems:
            return
    known = {
        name: evaluator_builder.metric_names(pipeline, index)
        for index, name in enumerate(eval_config_rules.reader_names(pipeline))
    }
    yield from eval_config_rules.check_metrics(pipeline, known)
