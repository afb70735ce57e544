"""Models of `transformers` without code of one's own: configurations, entry points.

hub               what is fetched from it
configurations    of a folder, a bundled name or the hub
locking           a lock between processes
remote_code       code that comes with a model, run if that is asked for
weight_files      safetensors: names, forms and values of tensors
weight_names      what `transformers` calls them in the model
spare_tensors     those that the model has no place for
pretrained        weights that layers are filled with
low_rank          adapters that train in place of the weights
model_folder      trained weights as `transformers` reads them
adapter_folder    trained adapters as `peft` reads them
prepared_layers   layers with weights, adapters, and parts that do not train
documents         rows of files and data sets
tokenizing        their tokens
token_files       all tokens of a data set, mapped into memory
samples           samples of a fixed length
evaluated         the evaluation that arguments name
recipes           optimizer, learning rate and precision by name
workloads         the entry points of causal language models
encoders          the entry point of encoders
image_models      the entry point of image classifiers
tasks             which task a configuration is of
"""

from plimsoll_trainer.huggingface.encoders import encoder
from plimsoll_trainer.huggingface.image_models import image_classifier
from plimsoll_trainer.huggingface.workloads import finetune, pretrain

__all__ = ["encoder", "finetune", "image_classifier", "pretrain"]
