"""Names of settings that are about training, or about how fast a trainer prepares rows, and not about what is in them.

They are reported in one line, so that the others can be seen.

The lists are by no means whole: what is in neither is reported as unknown, which is no error.
"""

_PREFIXES = (
    "adam_", "bnb_", "comet_", "ddp", "deepspeed", "dp_", "eval_", "evals_", "flash_", "flex_", "freeze_", "fsdp",
    "galore_", "generation_", "gpt", "gradient_", "hub_", "kto_", "learning_rate", "liger_", "load_in_", "logging_",
    "lora_", "loraplus_", "loss_", "lr_", "mlflow_", "neftune_", "optim", "orpo_", "peft", "per_device_", "pref_",
    "quantization", "relora", "save_", "saves_", "swanlab_", "torch_", "trackio_", "unsloth", "vllm", "wandb_",
    "warmup_", "xformers_",
)  # fmt: skip

_NAMES = frozenset({
    "activation_offloading", "adapter", "adapter_name_or_path", "additional_target", "attn_implementation",
    "auto_find_batch_size", "auto_resume_from_checkpoints", "batch_flattening", "batch_size", "bf16", "bfloat16",
    "buffer_size", "cache_dir", "chunked_cross_entropy", "compute_accuracy", "context_parallel_size",
    "cosine_min_lr_ratio", "create_new_adapter", "data_seed", "data_shared_file_system", "dataloader_drop_last",
    "dataloader_num_workers", "dataloader_pin_memory", "dataloader_prefetch_factor", "dataset_keep_in_memory",
    "dataset_num_proc", "dataset_prepared_path", "dataset_processes", "debug", "device", "device_map",
    "disable_shuffling", "do_eval", "do_predict", "do_train", "eager_attention", "early_stopping_patience",
    "embeddings_skip_upcast", "enable_liger_kernel", "epochs", "eval_max_new_tokens", "eval_table_max_new_tokens",
    "finetuning_type", "float16", "fp16", "gpu_memory_limit", "group_by_length", "hf_hub_token", "hf_use_auth_token",
    "include_num_input_tokens_seen", "include_tokens_per_second", "is_falcon_derived_model", "is_llama_derived_model",
    "is_mistral_derived_model", "is_qwen_derived_model", "load_best_model_at_end", "local_rank", "low_cpu_mem_usage",
    "max_grad_norm", "max_memory", "max_steps", "metric_for_best_model", "micro_batch_size", "mixture_of_depths",
    "model_config", "model_type", "num_dataset_shards_to_save", "num_epochs", "num_train_epochs", "output_dir",
    "overwrite_cache", "overwrite_output_dir", "plot_loss", "plugins", "predict_with_generate", "preprocess_shards",
    "preprocessing_batch_size", "preprocessing_num_workers", "pretrain_multipack_buffer_size", "profiler_steps",
    "pure_bf16", "push_dataset_to_hub", "qat", "ray_num_workers", "ray_run_name", "ray_storage_path",
    "remove_unused_columns", "report_to", "reserved_label_len", "resize_vocab", "resume_from_checkpoint",
    "rope_scaling", "run_name", "s2_attention", "sample_packing_bin_size", "sample_packing_group_size",
    "sample_packing_mp_start_method", "sdp_attention", "seed", "sequence_parallel_degree", "shift_attn",
    "shuffle_before_merging_datasets", "skip_prepare_dataset", "streaming_multipack_buffer_size", "strict",
    "tensor_parallel_size", "tf32", "tokenized_path", "tokenizer_legacy", "tokenizer_use_fast", "trainer_cls",
    "unfrozen_parameters", "upcast_layernorm", "use_adam_mini", "use_badam", "use_dora", "use_fast_tokenizer",
    "use_galore", "use_rslora", "use_swanlab", "use_tensorboard", "use_unsloth", "use_unsloth_gc", "use_wandb",
    "weight_decay",
})  # fmt: skip

_OF_ROWS = ("data", "mask", "pack", "prompt", "sample", "template", "token", "train_on")
"""What a key about rows has in it: no beginning makes `eval_datasett` the trainer's own; it may be a typing mistake."""


def is_training_key(key: str) -> bool:
    """Whether a key is known to be about training; of one that may be about rows only the whole name says so."""
    return key in _NAMES or (key.startswith(_PREFIXES) and not any(word in key for word in _OF_ROWS))
