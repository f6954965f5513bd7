"""Names of the weights of detection transformers in files of transformers, as variables of ours.

Our layers are named as theirs wherever the same rule fits all models; the rows are the others.
"""

import re
from collections.abc import Sequence

_VARIABLES = {
    **{'kernel': 'weight', 'gamma': 'weight', 'beta': 'bias', 'depthwise_kernel': 'weight'},
    **{'moving_mean': 'running_mean', 'moving_variance': 'running_var'},
}
# Pattern of a name here, with dots -> the name there; the first row that fits counts.
Rows = Sequence[tuple[str, str]]

_HEADS: Rows = ((r'decoder\.(class|bbox)_embed\.', r'model.decoder.\1_embed.'),)
_CELLS: Rows = (
    (r'queries\.cells\.0\.output\.', 'model.enc_output.0.'),
    (r'queries\.cells\.0\.norm\.', 'model.enc_output.1.'),
    (r'queries\.cells\.0\.score\.', 'model.enc_score_head.'),
    (r'queries\.cells\.0\.bbox\.', 'model.enc_bbox_head.'),
    (r'queries\.contents$', 'model.weight_embedding.weight'),
    (r'queries\.class_contents$', 'model.denoising_class_embed.weight'),
)
_PROJECTIONS: Rows = (
    (r'encoder\.input_proj\.(\d+)\.conv\.', r'model.encoder_input_proj.\1.0.'),
    (r'encoder\.input_proj\.(\d+)\.norm\.', r'model.encoder_input_proj.\1.1.'),
    (r'encoder\.decoder_input_proj\.(\d+)\.conv\.', r'model.decoder_input_proj.\1.0.'),
    (r'encoder\.decoder_input_proj\.(\d+)\.norm\.', r'model.decoder_input_proj.\1.1.'),
)
_MODEL: Rows = ((r'(encoder|decoder)\.', r'model.\1.'),)
RT_DETR: Rows = (*_CELLS, *_PROJECTIONS, *_MODEL)
RT_DETR_V2: Rows = (
    (r'decoder\.(.*)\.num_points_scale$', r'model.decoder.\1.n_points_scale'),
    *RT_DETR,
)
D_FINE: Rows = (
    (r'(.*\.layers\.\d+\.mlp)\.fc1\.', r'model.\1.layers.0.'),
    (r'(.*\.layers\.\d+\.mlp)\.fc2\.', r'model.\1.layers.1.'),
    *RT_DETR,
)
RF_DETR: Rows = (
    (r'encoder\.layer_norm\.', 'model.backbone.projector.layer_norm.'),
    (r'encoder\.', 'model.backbone.projector.projector_layer.'),
    (r'queries\.cells\.(\d+)\.output\.', r'model.enc_output.\1.'),
    (r'queries\.cells\.(\d+)\.norm\.', r'model.enc_output_norm.\1.'),
    (r'queries\.cells\.(\d+)\.score\.', r'model.enc_out_class_embed.\1.'),
    (r'queries\.cells\.(\d+)\.bbox\.', r'model.enc_out_bbox_embed.\1.'),
    (r'queries\.contents$', 'model.query_feat.weight'),
    (r'queries\.boxes$', 'model.reference_point_embed.weight'),
    (r'decoder\.(class|bbox)_embed\.0\.', r'\1_embed.'),
    (r'decoder\.layers\.(\d+)\.encoder_attn', r'model.decoder.layers.\1.cross_attn'),
    (r'decoder\.layers\.(\d+)\.final_layer_norm\.', r'model.decoder.layers.\1.layer_norm.'),
    *_MODEL,
)
DETR: Rows = (
    (r'encoder\.input_projection\.', 'model.input_projection.'),
    (r'encoder\.(row|column)_embeddings$', r'model.position_embedding.\1_embeddings.weight'),
    (r'queries\.positions$', 'model.query_position_embeddings.weight'),
    (r'decoder\.class_embed\.0\.', 'class_labels_classifier.'),
    (r'decoder\.bbox_embed\.0\.', 'bbox_predictor.'),
    *_MODEL,
)


def key(name: str, rows: Rows) -> str:
    """Returns the name there for a variable here, such as 'decoder/layers_0/mlp/fc1/kernel'."""
    *layers, variable = name.split('/')
    path = '.'.join([*layers, _VARIABLES.get(variable, variable)])
    # 'layers_0' -> 'layers.0', 'bottlenecks_0_conv1' -> 'bottlenecks.0.conv1'.
    path = re.sub(r'_(\d+)_(?=[a-z])', r'.\1.', path)
    path = re.sub(r'_(\d+)(?=\.|$)', r'.\1', path)
    for pattern, there in rows:
        if re.match(pattern, path):
            return re.sub(f'^{pattern}', there, path)
    return path
