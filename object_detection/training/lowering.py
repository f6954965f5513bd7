"""The program of a config's training step, made without its data and without an accelerator."""

from object_detection.builders import dataset_builder
from object_detection.builders.input_readers import examples as examples_builder
from object_detection.config import synthetic_data
from object_detection.models import precision as precisions
from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig
from object_detection.training import epochs, setup


def lower_for_tpu(pipeline: TrainEvalPipelineConfig, *, cores: int = 8) -> str:
    """Builds the detector and its step, and returns the program of one core as text (HLO).

    See `TrainStep.lower`, and `monitoring.step_program`, which reads the text. Nothing is computed,
    and no file is read: the batches have the shapes of synthetic data.

    Args:
      pipeline: the config with overrides applied; all images must have one size.
      cores: number of cores of the TPU, which share each batch.

    Raises:
      ConfigError: if the detector or its training cannot be built.
      tf.errors.OpError: if XLA cannot compile an operation of the step.
    """
    config = synthetic_data.without_files(pipeline)
    config.train_config.batch_size = max(1, config.train_config.batch_size // cores)
    config.train_config.num_steps = config.train_config.num_steps or 1
    epochs.resolve_epochs(config)
    precision = precisions.write(config.train_config, None, use_tpu=True)
    with precisions.scope(precision):
        detector = setup.build_detector(config)
        train_step = setup.build_step(
            config.train_config,
            detector,
            dataset_builder.build_train(config, seed=0).element_spec,
            seed=0,
            bucket_sizes=examples_builder.bucket_sizes(config.train_input_reader),
        )
        return train_step.lower()
