"""Records detectors of torchvision for check_recorded.py, with weights of a recipe.

    python3.11 -m venv /opt/torchvision
    /opt/torchvision/bin/pip install torch torchvision
    /opt/torchvision/bin/python benchmarks/peers/torchvision_record.py --recipe recipe_torch.py \\
        --like FOLDER --output OTHER_FOLDER

`--like` is a folder with NAME.json of recorded detectors, whose constants of the recipe and sizes
of images are taken, for a second version those of the first, for SSD those of SSDLite; new is what
follows from them. Each NAME.npz holds whole arrays.
"""

import argparse
import contextlib
import importlib.util
import json
import pathlib
from collections.abc import Iterator

import numpy as np
import torch
import torchvision
from recorded_images import recorded_images

LIMITS = {
    'min_size': 224,
    'max_size': 320,
    'box_score_thresh': 0.011,
    'rpn_pre_nms_top_n_test': 400,
    'rpn_post_nms_top_n_test': 200,
    'box_detections_per_img': 60,
}
_KEYPOINT_SCORE = 0.3
SINGLE_SHOT_LIMITS = {
    'min_size': 224,
    'max_size': 320,
    'score_thresh': 0.3,
    'topk_candidates': 300,
    'detections_per_img': 60,
}
# These two have a size of their own.
SSD_LIMITS = {'score_thresh': 0.02}
_SSDLITE, _SSD = 'ssdlite320_mobilenet_v3_large', 'ssd300_vgg16'
FUNCTIONS = [
    *(
        f'{kind}_resnet50_fpn'
        for kind in ('fasterrcnn', 'maskrcnn', 'keypointrcnn', 'retinanet', 'fcos')
    ),
    *(_SSDLITE, _SSD),
]
# SSD sees images in 0..255, and has a factor for each channel of its first map, of the size of 20;
# its scores are to differ.
_SSD_FACTORS = [
    [r'backbone\.features\.0\.weight', 0.02],
    [r'backbone\.scale_weight', 200.0],
    [r'classification_head\.module_list', 2.0],
    [r'regression_head\.module_list', 0.5],
]
# Proposals of an image that the heads are recorded for, and those of them for masks and keypoints.
_PROPOSALS, _MASKS = 64, 16


@contextlib.contextmanager
def outputs_of(module: torch.nn.Module) -> Iterator[list]:
    """Yields a list that receives what the module returns."""
    found: list = []
    handle = module.register_forward_hook(lambda _, __, output: found.append(output))
    yield found
    handle.remove()


def record(model: torch.nn.Module, images: np.ndarray) -> dict[str, torch.Tensor]:
    """Returns the arrays of a model of two stages by their names."""
    batch = [torch.from_numpy(image).permute(2, 0, 1) / 255.0 for image in images]
    arrays = {'images': torch.from_numpy(images)}
    chosen: list = []
    choose = model.rpn.filter_proposals
    # The module itself returns no scores.
    model.rpn.filter_proposals = lambda *words: chosen.append(choose(*words)) or chosen[-1]
    with contextlib.ExitStack() as stack:
        parts = (model.rpn.head, model.rpn.anchor_generator)
        head, anchors = (stack.enter_context(outputs_of(part)) for part in parts)
        detections = model(batch)
    resized, _ = model.transform(batch)
    features = model.backbone(resized.tensors)
    arrays['preprocess/images'] = resized.tensors
    arrays |= {f'features/{name}': value for name, value in features.items()}
    for level, pair in enumerate(zip(*head[0], strict=True)):
        arrays[f'rpn/objectness.{level}'], arrays[f'rpn/box_codes.{level}'] = pair
    arrays['rpn/anchors'] = anchors[0][0]
    proposals, scores = chosen[0]
    first = [each[:_PROPOSALS] for each in proposals]
    for image, each in enumerate(proposals):
        arrays[f'proposals.{image}'] = each
        arrays[f'proposals/scores.{image}'] = scores[image]
        arrays[f'box/proposals.{image}'] = first[image]
    heads = model.roi_heads
    crops = heads.box_roi_pool(features, first, resized.image_sizes)
    found = heads.box_head(crops)
    arrays |= {'box/crops': crops, 'box/features': found}
    arrays['box/class_logits'], arrays['box/box_codes'] = heads.box_predictor(found)
    for kind in ('mask', 'keypoint'):
        if getattr(heads, f'{kind}_roi_pool', None) is not None:
            fewer = [each[:_MASKS] for each in first]
            crops = getattr(heads, f'{kind}_roi_pool')(features, fewer, resized.image_sizes)
            crops = getattr(heads, f'{kind}_head')(crops)
            arrays[f'{kind}/logits'] = getattr(heads, f'{kind}_predictor')(crops)
    for image, found in enumerate(detections):
        arrays |= {f'detections/{name}.{image}': value for name, value in found.items()}
    return arrays


def record_single_shot(model: torch.nn.Module, images: np.ndarray) -> dict[str, torch.Tensor]:
    """Returns the arrays of a model of one stage by their names."""
    batch = [torch.from_numpy(image).permute(2, 0, 1) / 255.0 for image in images]
    with contextlib.ExitStack() as stack:
        parts = (model.backbone, model.head, model.anchor_generator)
        maps, head, anchors = (stack.enter_context(outputs_of(part)) for part in parts)
        detections = model(batch)
    arrays = {'images': torch.from_numpy(images)}
    arrays['preprocess/images'] = model.transform(batch)[0].tensors
    arrays |= {f'features/{name}': value for name, value in maps[0].items()}
    arrays |= {f'head/{name}': value for name, value in head[0].items()}
    arrays['anchors'] = anchors[0][0]
    for image, found in enumerate(detections):
        arrays |= {f'detections/{name}.{image}': value for name, value in found.items()}
    return arrays


def limits_of(function: str) -> dict[str, float]:
    """Returns the sizes and thresholds that a detector is recorded with."""
    if function.endswith('_320_fpn'):
        return {}
    if function in (_SSDLITE, _SSD):
        return SSD_LIMITS
    if 'rcnn' not in function:
        return SINGLE_SHOT_LIMITS
    return LIMITS | ({'box_score_thresh': _KEYPOINT_SCORE} if 'keypoint' in function else {})


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('--recipe', required=True, help='recipe_torch.py')
    parser.add_argument('--like', required=True, type=pathlib.Path)
    parser.add_argument('--output', required=True, type=pathlib.Path)
    parser.add_argument('--functions', nargs='+', default=FUNCTIONS)
    options = parser.parse_args()
    spec = importlib.util.spec_from_file_location('recipe_torch', options.recipe)
    recipe = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(recipe)
    options.output.mkdir(parents=True, exist_ok=True)
    torch.set_grad_enabled(False)
    for function in options.functions:
        first = _SSDLITE if function == _SSD else function.removesuffix('_v2')
        like = json.loads((options.like / f'torchvision_{first}.json').read_text())
        build = getattr(torchvision.models.detection, function)
        model = build(weights=None, weights_backbone=None, **limits_of(function)).eval()
        like['model'] = f'torchvision_{function}'
        like['variables'] = [
            (name, list(value.shape), str(value.dtype).removeprefix('torch.'))
            for name, value in model.state_dict().items()
        ]
        numbers = like['recipe']
        if function == _SSD:
            numbers['factors'] = _SSD_FACTORS + numbers['factors']
        state = recipe.state_dict(like['variables'], numbers['s'], numbers['factors'])
        model.load_state_dict({key: torch.from_numpy(np.array(v)) for key, v in state.items()})
        recorder = record if 'rcnn' in function else record_single_shot
        found = recorder(model, recorded_images(*like['tensors']['images']['shape'][:3]))
        arrays = {name: value.numpy() for name, value in found.items()}
        np.savez(options.output / f'torchvision_{function}.npz', **arrays)
        like['system'] = f'torchvision {torchvision.__version__}'
        like['tensors'] = {
            name: {'shape': value.shape, 'dtype': str(value.dtype), 'stored': 'full'}
            for name, value in arrays.items()
        }
        path = options.output / f'torchvision_{function}.json'
        path.write_text(json.dumps(like, indent=1) + '\n')
        print(f'{path}: {len(arrays)} arrays')


if __name__ == '__main__':
    main()
