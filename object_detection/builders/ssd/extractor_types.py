"""The `type` names of SSD's feature extractors, known without loading TensorFlow."""

from collections.abc import Mapping

from object_detection.config import overrides

_RESNETS = (18, 34, 50, 101, 152)
_TF1_RESNETS = (50, 101, 152)
_MOBILENETS = ('v1', 'v2', 'v1_fpn', 'v2_fpn')

TYPES = (
    *(f'ssd_mobilenet_{name}_keras' for name in _MOBILENETS),
    *(f'ssd_resnet{depth}_v1_fpn_keras' for depth in _RESNETS),
    *(f'ssd_efficientnet-b{size}_bifpn_keras' for size in range(8)),
    # Networks of the reference implementation under TensorFlow 1.
    *(f'ssd_mobilenet_{name}' for name in _MOBILENETS),
    'ssd_mobilenet_v1_ppn',
    *(f'ssd_resnet{depth}_v1_fpn' for depth in _TF1_RESNETS),
    *(f'ssd_resnet{depth}_v1_ppn' for depth in _TF1_RESNETS),
)

_SIX_MAPS = 'ssd_mobilenet_v2_keras'
_SSDLITE = f'{_SIX_MAPS} with use_depthwise: true'
_FPNLITE = 'ssd_mobilenet_v2_fpn_keras with use_depthwise: true'

# Types of the reference implementation that are not built here -> what comes nearest in size and
# in the strides of its maps.
NEAREST: Mapping[str, str] = {
    'ssd_inception_v2': _SIX_MAPS,
    'ssd_inception_v3': 'ssd_resnet50_v1_fpn_keras',
    'ssd_pnasnet': 'ssd_resnet101_v1_fpn_keras',
    'ssd_mobilenet_v2_mnasfpn': _FPNLITE,
    'ssd_mobilenet_v3_large': _SSDLITE,
    'ssd_mobilenet_v3_small': f'{_SSDLITE} and a depth_multiplier below 1',
    'ssd_mobilenet_edgetpu': _SSDLITE,
    'ssd_mobiledet_cpu': _SSDLITE,
    'ssd_mobiledet_dsp': _SSDLITE,
    'ssd_mobiledet_edgetpu': _SSDLITE,
    'ssd_mobiledet_gpu': _SSDLITE,
    'ssd_spaghettinet': _SSDLITE,
    'embedded_ssd_mobilenet_v1': 'ssd_mobilenet_v1_keras with num_layers: 5',
}


def problem(type_name: str) -> str | None:
    """Returns what is wrong with a feature extractor's type, or None.

    It continues the name of the field, such as 'expected ...'.
    """
    if type_name in TYPES:
        return None
    note = ''
    if type_name in NEAREST:
        note = f'{overrides.NOT_BUILT}; the nearest one is {NEAREST[type_name]}'
    return overrides.unknown_choice(type_name, TYPES, note=note)
