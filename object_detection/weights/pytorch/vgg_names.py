"""Names of the weights of torchvision's VGG16 under SSD, as layers of our backbone."""

from collections.abc import Collection

from object_detection.models.backbones.resnet_v1 import Options
from object_detection.models.backbones.vgg import MEANS
from object_detection.weights.third_party_names import First, Format, Pixels

# The number of a convolution there counts activations and poolings, too; what follows the map of
# stride 8 is counted anew.
_LAYERS = {
    **{'features.0': 'conv1_1', 'features.2': 'conv1_2'},
    **{'features.5': 'conv2_1', 'features.7': 'conv2_2'},
    **{'features.10': 'conv3_1', 'features.12': 'conv3_2', 'features.14': 'conv3_3'},
    **{'features.17': 'conv4_1', 'features.19': 'conv4_2', 'features.21': 'conv4_3'},
    **{'extra.0.1': 'conv5_1', 'extra.0.3': 'conv5_2', 'extra.0.5': 'conv5_3'},
    **{'extra.0.7.1': 'fc6', 'extra.0.7.3': 'fc7'},
}
_VARIABLES = {
    'backbone.scale_weight': 'conv4_3_scaled/scale',
    **{f'backbone.{theirs}.weight': f'{ours}/kernel' for theirs, ours in _LAYERS.items()},
    **{f'backbone.{theirs}.bias': f'{ours}/bias' for theirs, ours in _LAYERS.items()},
}


def translate(names: Collection[str]) -> dict[str, str]:
    """Returns our name 'conv1_1/kernel' -> the name in the file."""
    return {_VARIABLES[name]: name for name in names if name in _VARIABLES}


VGG16_OF_SSD = Format(
    'torchvision VGG16',
    'backbone.features.0.weight',
    translate,
    Pixels(mean=MEANS, std=(1.0, 1.0, 1.0)),
    Options(),
    first=First('conv1_1/kernel', ''),
)
