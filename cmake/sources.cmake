# Written by `tools/lint/lint --fix` from the BUILD files: which sources a component has, and what it uses.
# tools/lint/cmake_sources.py says which Bazel targets a component is made of. A component stands after the components
# that it uses.

set(lockstep_all_components
  base
  base_torch
  base_crypto
  base_logging
  base_jemalloc
  base_json
  launch
  launch_program
  comm
  comm_gloo
  comm_shm
  comm_hierarchical
  comm_cpu
  comm_nccl
  sampler
  dp
  data
  data_sentencepiece
  data_images
  optim
  checkpoint
  checkpoint_manager
  checkpoint_sharded
  inspect_program
  sampler_checkpoint
  ddp
  ddp_checkpoint
  fsdp
  elastic
  fsdp_checkpoint
  data_text
  tensorboard
  models
  models_exported
  models_scripted
  models_transformer
)

# lockstep::base
set(lockstep_base_sources
  base/flag_error.cc
  base/heartbeat.cc
  base/nearest_name.cc
  base/output_file.cc
  base/posix/descriptors.cc
  base/posix/folder.cc
  base/posix/listen.cc
  base/posix/regular_file.cc
  base/posix/socket.cc
  base/posix/socket_address.cc
  base/posix/static_program.cc
  base/printable.cc
  base/progress.cc
  base/seed.cc
  base/slurm.cc
  base/status.cc
  base/thread.cc
  base/wrapped_text.cc
)
set(lockstep_base_headers
  base/batch_norms_in_code.h
  base/non_persistent_buffers.h
  base/output_file.h
  base/posix/unique_fd.h
  base/status.h
  base/version.h
)
set(lockstep_base_third_party absl)

# lockstep::base_torch
set(lockstep_base_torch_sources base/torch_status.cc)
set(lockstep_base_torch_headers
  base/libtorch_compatibility.h
  base/libtorch_version.h
  base/tensors.h
  base/torch_status.h
)
set(lockstep_base_torch_components base)
set(lockstep_base_torch_third_party absl torch)

# lockstep::base_crypto
set(lockstep_base_crypto_sources base/crypto/crypto.cc base/crypto/job_secret.cc)
set(lockstep_base_crypto_components base)
set(lockstep_base_crypto_third_party absl libcrypto)

# lockstep::base_logging
set(lockstep_base_logging_headers base/logging.h)
set(lockstep_base_logging_third_party glog torch)

# lockstep::base_jemalloc
set(lockstep_base_jemalloc_sources base/jemalloc.cc)
set(lockstep_base_jemalloc_third_party jemalloc)
set(lockstep_base_jemalloc_whole_archive TRUE)

# lockstep::base_json
set(lockstep_base_json_sources base/json_fields.cc)
set(lockstep_base_json_components base)
set(lockstep_base_json_third_party absl nlohmann_json)

# lockstep::launch
set(lockstep_launch_sources
  launch/cpu/cpu_plan.cc
  launch/cpu/cpu_topology.cc
  launch/flags/check_options.cc
  launch/job/agent_steps.cc
  launch/job/candidates.cc
  launch/job/coordinator.cc
  launch/job/coordinator_staying.cc
  launch/job/cut_hosts.cc
  launch/job/departures.cc
  launch/job/early_deaths.cc
  launch/job/failure.cc
  launch/job/flag_check.cc
  launch/job/job.cc
  launch/job/membership.cc
  launch/job/membership_reports.cc
  launch/job/next_generation.cc
  launch/job/node_slots.cc
  launch/job/outcome.cc
  launch/job/process_restarts.cc
  launch/job/rank_plan.cc
  launch/job/restart_policy.cc
  launch/job/stall_watch.cc
  launch/link/agent_link.cc
  launch/link/link_message.cc
  launch/node/attempt.cc
  launch/node/attempt_regroup.cc
  launch/node/attempt_result.cc
  launch/node/master_socket.cc
  launch/node/rank_links.cc
  launch/node/rank_processes.cc
  launch/node/rank_starter.cc
  launch/node/rank_variables.cc
  launch/output/console.cc
  launch/output/event_log.cc
  launch/output/last_lines.cc
  launch/output/line_filter.cc
  launch/output/line_prefixer.cc
  launch/output/log_folder.cc
  launch/output/output.cc
  launch/process/descendants.cc
  launch/process/group_members.cc
  launch/process/job_cgroup.cc
  launch/process/keeper.cc
  launch/process/process.cc
  launch/process/process_state.cc
  launch/process/signal_relay.cc
  launch/process/strays.cc
  launch/report/failure.cc
  launch/report/report.cc
  launch/report/report_file.cc
  launch/spawn.cc
  launch/status/status_board.cc
  launch/status/step_rate.cc
  launch/supervisor.cc
)
set(lockstep_launch_headers
  launch/job/launch_options.h
  launch/job/streams.h
  launch/link/agent_link.h
  launch/link/rank_generation.h
  launch/report/failure.h
  launch/report/rank_failure.h
  launch/report/report.h
  launch/spawn.h
  launch/supervisor.h
  tools/launch/agent_link/agent_link.h
  tools/launch/failure.h
  tools/launch/report.h
  tools/launch/spawn.h
  tools/launch/streams.h
  tools/launch/supervisor.h
)
set(lockstep_launch_components base)
set(lockstep_launch_third_party absl)

# lockstep::launch_program
set(lockstep_launch_program_program launch)
set(lockstep_launch_program_sources
  launch/flags/command_line.cc
  launch/flags/devices.cc
  launch/flags/endpoint_flag.cc
  launch/flags/flag_table.cc
  launch/flags/flag_values.cc
  launch/flags/python_program.cc
  launch/flags/rendezvous_flags.cc
  launch/flags/scheduler.cc
  launch/job/job_json.cc
  launch/launch.cc
  launch/node/agent.cc
  launch/node/job_link.cc
  launch/node/job_program.cc
  launch/node/run_job.cc
  launch/node/wait_lines.cc
  launch/rendezvous/etcd/curl_library.cc
  launch/rendezvous/etcd/etcd_client.cc
  launch/rendezvous/etcd/etcd_rendezvous.cc
  launch/rendezvous/etcd/etcd_session.cc
  launch/rendezvous/etcd/http_client.cc
  launch/rendezvous/etcd/job_keys.cc
  launch/rendezvous/etcd/repeated_requests.cc
  launch/rendezvous/etcd/seen_keys.cc
  launch/rendezvous/etcd/signed_text.cc
  launch/rendezvous/shared_view.cc
  launch/rendezvous/tcp/sealed_stream.cc
  launch/rendezvous/tcp/tcp_guest.cc
  launch/rendezvous/tcp/tcp_host.cc
  launch/rendezvous/tcp/tcp_rendezvous.cc
  launch/status/commands.cc
  launch/status/job_client.cc
  launch/status/job_status_json.cc
  launch/status/local_server.cc
  launch/status/status_folder.cc
  launch/status/status_service.cc
  launch/status/status_table.cc
  launch/status/terminal.cc
  launch/status/top.cc
)
set(lockstep_launch_program_components base base_crypto base_json launch)
set(lockstep_launch_program_third_party absl curl_headers nlohmann_json)

# lockstep::comm
set(lockstep_comm_sources
  comm/agreement.cc
  comm/backend.cc
  comm/environment/rank_environment.cc
  comm/environment/rank_identity.cc
  comm/init_process_group.cc
  comm/internal/argument_check.cc
  comm/internal/backend_status.cc
  comm/internal/call.cc
  comm/internal/choice_text.cc
  comm/internal/flat.cc
  comm/internal/group_factory.cc
  comm/internal/group_state.cc
  comm/internal/layouts.cc
  comm/internal/silent_hosts.cc
  comm/internal/uncaught.cc
  comm/process_group.cc
  comm/process_group_bytes.cc
  comm/process_group_collectives.cc
  comm/process_group_exchange.cc
  comm/process_group_point_to_point.cc
  comm/process_group_store.cc
  comm/process_group_subgroups.cc
  comm/reduce_op.cc
  comm/rendezvous/board.cc
  comm/rendezvous/collector.cc
  comm/rendezvous/meeting.cc
  comm/rendezvous/rendezvous.cc
  comm/rendezvous/roster.cc
  comm/rendezvous/waiting_notice.cc
  comm/secret/sealed_store.cc
  comm/store/internal/bounded_call.cc
  comm/store/internal/c10d_stores.cc
  comm/store/internal/guarded_store.cc
  comm/store/internal/listen_socket.cc
  comm/store/internal/tcp_connection.cc
  comm/store/internal/tcp_store_client.cc
  comm/store/store.cc
  comm/tree_sum/sum_tree.cc
  comm/tree_sum/tree_scatter.cc
  comm/tree_sum/tree_sum.cc
  comm/watch/internal/arbiter.cc
  comm/watch/internal/connection.cc
  comm/watch/internal/endpoint.cc
  comm/watch/internal/frame.cc
  comm/watch/internal/handshake.cc
  comm/watch/internal/hub.cc
  comm/watch/internal/participant.cc
  comm/watch/internal/process_handle.cc
  comm/watch/internal/spoke.cc
  comm/watch/internal/watch_thread.cc
  comm/watch/internal/wording.cc
  comm/watch/watch.cc
  comm/work.cc
)
set(lockstep_comm_headers
  comm/agreement.h
  comm/backend.h
  comm/environment/rank_environment.h
  comm/environment/rank_identity.h
  comm/init_process_group.h
  comm/internal/call.h
  comm/internal/layouts.h
  comm/process_group.h
  comm/reduce_op.h
  comm/store/store.h
  comm/tree_sum/sum_tree.h
  comm/tree_sum/tree_scatter.h
  comm/tree_sum/tree_sum.h
  comm/watch/watch.h
  comm/work.h
)
set(lockstep_comm_components base base_torch base_crypto base_logging launch)
set(lockstep_comm_third_party absl torch)

# lockstep::comm_gloo
set(lockstep_comm_gloo_sources
  comm/gloo/gloo.cc
  comm/gloo/internal/connection_watch.cc
  comm/gloo/internal/gloo_backend.cc
  comm/gloo/internal/gloo_devices.cc
  comm/gloo/internal/gloo_threads.cc
  comm/gloo/internal/gloo_work.cc
  comm/gloo/internal/native_form.cc
)
set(lockstep_comm_gloo_components base base_torch comm)
set(lockstep_comm_gloo_third_party absl gloo_headers torch)
set(lockstep_comm_gloo_whole_archive TRUE)

# lockstep::comm_shm
set(lockstep_comm_shm_sources
  comm/shm/communicator.cc
  comm/shm/dtype.cc
  comm/shm/heap.cc
  comm/shm/internal/backend.cc
  comm/shm/internal/collective.cc
  comm/shm/internal/collective_rounds.cc
  comm/shm/internal/fd_passing.cc
  comm/shm/internal/kernels_avx2.cc
  comm/shm/internal/kernels_avx512.cc
  comm/shm/internal/kernels_baseline.cc
  comm/shm/internal/mail.cc
  comm/shm/internal/tensors.cc
  comm/shm/operation.cc
  comm/shm/reduce.cc
  comm/shm/segment.cc
  comm/shm/shm.cc
)
set(lockstep_comm_shm_components base base_torch comm)
set(lockstep_comm_shm_third_party absl torch)
set(lockstep_comm_shm_whole_archive TRUE)
lockstep_source_options("-O3;-ffp-contract=off"
  comm/shm/dtype.cc
  comm/shm/internal/kernels_avx2.cc
  comm/shm/internal/kernels_avx512.cc
  comm/shm/internal/kernels_baseline.cc
  comm/shm/reduce.cc
)

# lockstep::comm_hierarchical
set(lockstep_comm_hierarchical_sources
  comm/hierarchical/hierarchical.cc
  comm/hierarchical/internal/address.cc
  comm/hierarchical/internal/gather_exchange.cc
  comm/hierarchical/internal/host_exchange.cc
  comm/hierarchical/internal/links.cc
  comm/hierarchical/internal/meeting.cc
  comm/hierarchical/internal/piece.cc
  comm/hierarchical/internal/pieces.cc
  comm/hierarchical/internal/pipeline.cc
  comm/hierarchical/internal/topology.cc
)
set(lockstep_comm_hierarchical_components base base_torch comm comm_gloo comm_shm)
set(lockstep_comm_hierarchical_third_party absl torch)
set(lockstep_comm_hierarchical_whole_archive TRUE)

# lockstep::comm_cpu
set(lockstep_comm_cpu_components comm_gloo comm_shm comm_hierarchical)

# lockstep::comm_nccl
set(lockstep_comm_nccl_cpu_sources comm/nccl/nccl_stub.cc)
set(lockstep_comm_nccl_cuda_sources comm/nccl/nccl.cc)
set(lockstep_comm_nccl_components base base_torch comm)
set(lockstep_comm_nccl_third_party absl torch)
set(lockstep_comm_nccl_cuda_third_party torch_cuda)
set(lockstep_comm_nccl_whole_archive TRUE)
lockstep_source_options("-DUSE_C10D_NCCL"
  comm/nccl/nccl.cc
)

# lockstep::sampler
set(lockstep_sampler_sources
  sampler/distributed_batch_sampler.cc
  sampler/distributed_sampler.cc
  sampler/evaluation_sampler.cc
  sampler/feistel_permutation.cc
  sampler/internal/archive.cc
  sampler/internal/checks.cc
  sampler/internal/order.cc
  sampler/random_sampler.cc
  sampler/sampler_state.cc
  sampler/torch_permutation.cc
  sampler/virtual_rank_sampler.cc
  sampler/weighted_sampler.cc
)
set(lockstep_sampler_headers
  sampler/distributed_batch_sampler.h
  sampler/distributed_sampler.h
  sampler/evaluation_sampler.h
  sampler/feistel_permutation.h
  sampler/index_iterator.h
  sampler/internal/archive.h
  sampler/internal/order.h
  sampler/random_sampler.h
  sampler/sampler.h
  sampler/sampler_state.h
  sampler/torch_permutation.h
  sampler/torch_sampler.h
  sampler/virtual_rank_sampler.h
  sampler/weighted_sampler.h
)
set(lockstep_sampler_components base base_torch)
set(lockstep_sampler_third_party absl torch)

# lockstep::dp
set(lockstep_dp_sources
  dp/broadcast.cc
  dp/device_id.cc
  dp/gather.cc
  dp/internal/balance.cc
  dp/internal/chunk.cc
  dp/internal/copy.cc
  dp/internal/kept_replicas.cc
  dp/internal/module.cc
  dp/internal/sum_of_copies.cc
  dp/internal/workers.cc
  dp/parallel_apply.cc
  dp/scatter.cc
)
set(lockstep_dp_cpu_sources dp/internal/peers_stub.cc)
set(lockstep_dp_cuda_sources dp/internal/peers_cuda.cc)
set(lockstep_dp_headers
  dp/broadcast.h
  dp/data_parallel.h
  dp/device_id.h
  dp/gather.h
  dp/internal/balance.h
  dp/internal/chunk.h
  dp/internal/copy.h
  dp/internal/kept_replicas.h
  dp/internal/module.h
  dp/internal/peers.h
  dp/internal/workers.h
  dp/parallel_apply.h
  dp/replicate.h
  dp/scatter.h
)
set(lockstep_dp_components base base_torch base_logging)
set(lockstep_dp_third_party absl torch)
set(lockstep_dp_cuda_third_party torch_cuda)

# lockstep::data
set(lockstep_data_sources
  data/dataset.cc
  data/fake_data.cc
  data/fashion_mnist.cc
  data/geometry.cc
  data/idx.cc
  data/image_folder.cc
  data/image_transform.cc
  data/internal/batch.cc
  data/internal/byte_source.cc
  data/internal/folder_tree.cc
  data/internal/python_order.cc
  data/internal/resample.cc
  data/internal/resample_kernels.cc
  data/internal/resample_kernels_avx2.cc
  data/internal/resample_taps.cc
  data/loader.cc
  data/step_loader.cc
  data/tokens/byte_tokenizer.cc
  data/tokens/king_james_bible.cc
  data/tokens/token_dataset.cc
  data/tokens/token_file.cc
  data/torch_dataset.cc
  data/transforms.cc
)
set(lockstep_data_headers
  data/dataset.h
  data/example.h
  data/fake_data.h
  data/fashion_mnist.h
  data/geometry.h
  data/idx.h
  data/image.h
  data/image_folder.h
  data/image_transform.h
  data/loader.h
  data/step_loader.h
  data/tokens/byte_tokenizer.h
  data/tokens/king_james_bible.h
  data/tokens/token_dataset.h
  data/tokens/token_file.h
  data/tokens/tokenizer.h
  data/torch_dataset.h
  data/transforms.h
)
set(lockstep_data_components base base_torch base_logging sampler)
set(lockstep_data_third_party absl torch zlib)

# lockstep::data_sentencepiece
set(lockstep_data_sentencepiece_sources data/tokens/internal/sentencepiece_model.cc)
set(lockstep_data_sentencepiece_third_party sentencepiece)

# lockstep::data_images
set(lockstep_data_images_sources
  data/image_dataset.cc
  data/image_decoder.cc
  data/internal/bmp_decoder.cc
  data/internal/foreign_kind.cc
  data/internal/jpeg_decoder.cc
  data/internal/jpeg_markers.cc
  data/internal/leptonica.cc
  data/internal/png_decoder.cc
  data/internal/pnm_decoder.cc
  data/internal/tiff_colors.cc
  data/internal/tiff_decoder.cc
  data/internal/tiff_directory.cc
  data/internal/tiff_kind.cc
  data/internal/webp_decoder.cc
  data/internal/whole_file.cc
)
set(lockstep_data_images_headers data/image_dataset.h data/image_decoder.h)
set(lockstep_data_images_components base base_torch data)
set(lockstep_data_images_third_party absl leptonica libjpeg libpng torch)

# lockstep::optim
set(lockstep_optim_sources
  optim/adadelta.cc
  optim/adafactor.cc
  optim/adagrad.cc
  optim/adam.cc
  optim/adamax.cc
  optim/asgd.cc
  optim/averaged_model.cc
  optim/internal/aten.cc
  optim/internal/blocks.cc
  optim/internal/foreach.cc
  optim/internal/kernels.cc
  optim/internal/parallel.cc
  optim/internal/root.cc
  optim/internal/wolfe.cc
  optim/lamb.cc
  optim/lars.cc
  optim/lbfgs.cc
  optim/muon.cc
  optim/nadam.cc
  optim/number.cc
  optim/optimizer.cc
  optim/options.cc
  optim/radam.cc
  optim/rmsprop.cc
  optim/rprop.cc
  optim/sgd.cc
  optim/sparse_adam.cc
)
set(lockstep_optim_headers
  optim/adadelta.h
  optim/adafactor.h
  optim/adagrad.h
  optim/adam.h
  optim/adamax.h
  optim/adamw.h
  optim/asgd.h
  optim/averaged_model.h
  optim/internal/kernels.h
  optim/internal/program.h
  optim/lamb.h
  optim/lars.h
  optim/lbfgs.h
  optim/muon.h
  optim/nadam.h
  optim/number.h
  optim/optimizer.h
  optim/options.h
  optim/radam.h
  optim/rmsprop.h
  optim/rprop.h
  optim/sgd.h
  optim/sparse_adam.h
)
set(lockstep_optim_components base base_torch)
set(lockstep_optim_third_party absl torch)
lockstep_source_options("-O3;-fno-math-errno;-fno-trapping-math"
  optim/internal/kernels.cc
)

# lockstep::checkpoint
set(lockstep_checkpoint_sources
  checkpoint/archive/bounds.cc
  checkpoint/archive/decoder.cc
  checkpoint/archive/encoder.cc
  checkpoint/archive/legacy.cc
  checkpoint/archive/objects.cc
  checkpoint/archive/reader.cc
  checkpoint/archive/snapshot.cc
  checkpoint/archive/storage_loader.cc
  checkpoint/archive/writer.cc
  checkpoint/async_saver.cc
  checkpoint/checkpoint.cc
  checkpoint/deferred/file.cc
  checkpoint/deferred/tensors.cc
  checkpoint/file/atomic_file.cc
  checkpoint/file/block_writer.cc
  checkpoint/file/byte_stream.cc
  checkpoint/file/file_system.cc
  checkpoint/file/foreign_format.cc
  checkpoint/file/in_threads.cc
  checkpoint/file/path.cc
  checkpoint/file/text.cc
  checkpoint/file/two_way_file.cc
  checkpoint/map_location.cc
  checkpoint/optim/chainable.cc
  checkpoint/optim/cycles.cc
  checkpoint/optim/fields.cc
  checkpoint/optim/lockstep_optimizer_kind.cc
  checkpoint/optim/lr_scheduler.cc
  checkpoint/optim/momentum.cc
  checkpoint/optim/optimizer.cc
  checkpoint/optim/optimizer_kind.cc
  checkpoint/optim/plateau.cc
  checkpoint/optim/scheduler.cc
  checkpoint/optim/sequences.cc
  checkpoint/pickle/builder.cc
  checkpoint/pickle/globals.cc
  checkpoint/pickle/machine.cc
  checkpoint/pickle/reader.cc
  checkpoint/pickle/refusals.cc
  checkpoint/pickle/writer.cc
  checkpoint/pt2/archive.cc
  checkpoint/pt2/json_reader.cc
  checkpoint/pt2/payload.cc
  checkpoint/pt2/tensors.cc
  checkpoint/rng_state.cc
  checkpoint/safetensors/header.cc
  checkpoint/safetensors/json_scanner.cc
  checkpoint/safetensors/model.cc
  checkpoint/safetensors/safetensors.cc
  checkpoint/serialize.cc
  checkpoint/state_dict.cc
  checkpoint/tensors/dtype.cc
  checkpoint/tensors/placement.cc
  checkpoint/value.cc
  checkpoint/value_access.cc
  checkpoint/value_identical.cc
  checkpoint/zip/crc32.cc
  checkpoint/zip/reader.cc
  checkpoint/zip/writer.cc
)
set(lockstep_checkpoint_headers
  checkpoint/async_saver.h
  checkpoint/checkpoint.h
  checkpoint/file/atomic_file.h
  checkpoint/file/block_writer.h
  checkpoint/file/file_system.h
  checkpoint/file/two_way_file.h
  checkpoint/lr_scheduler.h
  checkpoint/map_location.h
  checkpoint/optim/fields.h
  checkpoint/optim/lr_scheduler.h
  checkpoint/optim/optimizer.h
  checkpoint/optim/optimizer_kind.h
  checkpoint/optim/schedules.h
  checkpoint/optimizer.h
  checkpoint/options.h
  checkpoint/rng_state.h
  checkpoint/safetensors.h
  checkpoint/safetensors/model.h
  checkpoint/safetensors/safetensors.h
  checkpoint/serialize.h
  checkpoint/state_dict.h
  checkpoint/value.h
)
set(lockstep_checkpoint_components base base_torch optim)
set(lockstep_checkpoint_third_party absl nlohmann_json torch zlib)
lockstep_source_options("-ffp-contract=off"
  checkpoint/optim/scheduler.cc
  checkpoint/optim/chainable.cc
  checkpoint/optim/cycles.cc
  checkpoint/optim/plateau.cc
  checkpoint/optim/sequences.cc
)

# lockstep::checkpoint_manager
set(lockstep_checkpoint_manager_sources
  checkpoint/manager/manager.cc
  checkpoint/manager/preemption_notice.cc
  checkpoint/manager/step_directory.cc
)
set(lockstep_checkpoint_manager_headers
  checkpoint/manager/manager.h
  checkpoint/manager/preemption_notice.h
  checkpoint/manager/step_directory.h
)
set(lockstep_checkpoint_manager_components base comm checkpoint)
set(lockstep_checkpoint_manager_third_party absl)

# lockstep::checkpoint_sharded
set(lockstep_checkpoint_sharded_sources
  checkpoint/sharded/internal/boxes.cc
  checkpoint/sharded/internal/checkpoint_directory.cc
  checkpoint/sharded/internal/chunk_reader.cc
  checkpoint/sharded/internal/chunk_writer.cc
  checkpoint/sharded/internal/describe.cc
  checkpoint/sharded/internal/entry_loader.cc
  checkpoint/sharded/internal/metadata_decoder.cc
  checkpoint/sharded/internal/metadata_encoder.cc
  checkpoint/sharded/internal/save_plan.cc
  checkpoint/sharded/internal/saver.cc
  checkpoint/sharded/internal/unflatten.cc
  checkpoint/sharded/internal/value_hash.cc
  checkpoint/sharded/load_whole.cc
  checkpoint/sharded/metadata.cc
  checkpoint/sharded/sharded.cc
  checkpoint/sharded/state_dict.cc
)
set(lockstep_checkpoint_sharded_headers
  checkpoint/sharded/box.h
  checkpoint/sharded/load_whole.h
  checkpoint/sharded/metadata.h
  checkpoint/sharded/sharded.h
  checkpoint/sharded/state_dict.h
)
set(lockstep_checkpoint_sharded_components base base_torch comm checkpoint)
set(lockstep_checkpoint_sharded_third_party absl torch)

# lockstep::inspect_program
set(lockstep_inspect_program_program inspect)
set(lockstep_inspect_program_sources
  base/command_line.cc
  base/internal/flag_parser.cc
  base/internal/usage_text.cc
  checkpoint/inspect/difference.cc
  checkpoint/inspect/digest.cc
  checkpoint/inspect/inspect.cc
  checkpoint/inspect/leaves.cc
  checkpoint/inspect/listing.cc
  checkpoint/inspect/programs.cc
)
set(lockstep_inspect_program_components base base_torch checkpoint)
set(lockstep_inspect_program_third_party absl gflags libcrypto nlohmann_json torch)

# lockstep::sampler_checkpoint
set(lockstep_sampler_checkpoint_sources sampler/sampler_state_value.cc)
set(lockstep_sampler_checkpoint_headers sampler/sampler_state_value.h)
set(lockstep_sampler_checkpoint_components base checkpoint sampler)
set(lockstep_sampler_checkpoint_third_party absl)

# lockstep::ddp
set(lockstep_ddp_sources
  ddp/amp/autocast.cc
  ddp/amp/grad_scaler.cc
  ddp/chrome_trace.cc
  ddp/clip_grad_norm.cc
  ddp/communication_hook.cc
  ddp/gradient_allocator.cc
  ddp/hooks/default_hooks.cc
  ddp/hooks/internal/orthogonalize.cc
  ddp/hooks/periodic_model_averager.cc
  ddp/hooks/post_local_sgd.cc
  ddp/hooks/power_sgd.cc
  ddp/internal/autograd_hooks.cc
  ddp/internal/backward_pass.cc
  ddp/internal/bucket_plan.cc
  ddp/internal/capture_check.cc
  ddp/internal/cast_parameters.cc
  ddp/internal/check_options.cc
  ddp/internal/device_clock.cc
  ddp/internal/gather_texts.cc
  ddp/internal/gradient_buckets.cc
  ddp/internal/kernels.cc
  ddp/internal/layout_agreement.cc
  ddp/internal/learned_graph.cc
  ddp/internal/module_changes.cc
  ddp/internal/non_finite.cc
  ddp/internal/own_graph.cc
  ddp/internal/parameter_check.cc
  ddp/internal/partial_gradients.cc
  ddp/internal/parting_note.cc
  ddp/internal/reducer.cc
  ddp/internal/reductions.cc
  ddp/internal/replica.cc
  ddp/internal/slot.cc
  ddp/internal/sparse_all_reduce.cc
  ddp/internal/step_recorder.cc
  ddp/internal/used_parameters.cc
  ddp/join.cc
  ddp/slowest_rank.cc
  ddp/statistics.cc
  ddp/sync_batch_norm/convert_sync_batch_norm.cc
  ddp/sync_batch_norm/internal/normalize.cc
  ddp/sync_batch_norm/internal/statistics.cc
  ddp/sync_batch_norm/norm_factory.cc
  ddp/sync_batch_norm/sync_batch_norm.cc
  ddp/zero/internal/shards.cc
)
set(lockstep_ddp_cpu_sources ddp/internal/stream_capture_stub.cc)
set(lockstep_ddp_cuda_sources ddp/internal/stream_capture_cuda.cc)
set(lockstep_ddp_headers
  ddp/amp/autocast.h
  ddp/amp/grad_scaler.h
  ddp/bucket_layout.h
  ddp/chrome_trace.h
  ddp/clip_grad_norm.h
  ddp/communication_hook.h
  ddp/distributed_data_parallel.h
  ddp/gradient_allocator.h
  ddp/hooks/default_hooks.h
  ddp/hooks/periodic_model_averager.h
  ddp/hooks/post_local_sgd.h
  ddp/hooks/power_sgd.h
  ddp/internal/autograd_hooks.h
  ddp/internal/backward_pass.h
  ddp/internal/bucket_plan.h
  ddp/internal/cast_parameters.h
  ddp/internal/device_clock.h
  ddp/internal/forward.h
  ddp/internal/gradient_buckets.h
  ddp/internal/known_hook.h
  ddp/internal/learned_graph.h
  ddp/internal/module_changes.h
  ddp/internal/non_finite.h
  ddp/internal/own_graph.h
  ddp/internal/parameter_check.h
  ddp/internal/partial_gradients.h
  ddp/internal/parting_note.h
  ddp/internal/reducer.h
  ddp/internal/reductions.h
  ddp/internal/replica.h
  ddp/internal/slot.h
  ddp/internal/slot_requests.h
  ddp/internal/step_recorder.h
  ddp/internal/used_parameters.h
  ddp/join.h
  ddp/no_sync.h
  ddp/options.h
  ddp/overlapped_optimizer.h
  ddp/slowest_rank.h
  ddp/statistics.h
  ddp/sync_batch_norm/convert_sync_batch_norm.h
  ddp/sync_batch_norm/norm_factory.h
  ddp/sync_batch_norm/sync_batch_norm.h
  ddp/zero/internal/shards.h
  ddp/zero/zero_redundancy_optimizer.h
)
set(lockstep_ddp_components base base_torch base_logging comm optim)
set(lockstep_ddp_third_party absl nlohmann_json torch)
set(lockstep_ddp_cuda_third_party torch_cuda)
lockstep_source_options("-O3"
  ddp/internal/kernels.cc
)

# lockstep::ddp_checkpoint
set(lockstep_ddp_checkpoint_sources
  ddp/amp/grad_scaler_value.cc
  ddp/bucket_layout_value.cc
  ddp/hooks/power_sgd_value.cc
)
set(lockstep_ddp_checkpoint_headers ddp/amp/grad_scaler_value.h ddp/bucket_layout_value.h ddp/hooks/power_sgd_value.h)
set(lockstep_ddp_checkpoint_components base base_torch checkpoint ddp)
set(lockstep_ddp_checkpoint_third_party absl torch)

# lockstep::fsdp
set(lockstep_fsdp_sources
  fsdp/internal/buffer_pool.cc
  fsdp/internal/buffers.cc
  fsdp/internal/device_streams.cc
  fsdp/internal/freed_address.cc
  fsdp/internal/gradient_norms.cc
  fsdp/internal/mesh.cc
  fsdp/internal/module_units.cc
  fsdp/internal/own_shards.cc
  fsdp/internal/paged_memory.cc
  fsdp/internal/paged_unit.cc
  fsdp/internal/parameter_key.cc
  fsdp/internal/published_pages.cc
  fsdp/internal/shard_reducer.cc
  fsdp/internal/sharded_module.cc
  fsdp/internal/shared_pages.cc
  fsdp/internal/unit_gradients.cc
  fsdp/internal/unit_order.cc
  fsdp/internal/unit_plan.cc
  fsdp/internal/unit_prefetch.cc
  fsdp/internal/unit_sequence.cc
  fsdp/internal/virtual_step.cc
)
set(lockstep_fsdp_headers
  fsdp/full_parameters.h
  fsdp/fully_sharded.h
  fsdp/internal/buffer_pool.h
  fsdp/internal/buffers.h
  fsdp/internal/device_streams.h
  fsdp/internal/kept_shards.h
  fsdp/internal/mesh.h
  fsdp/internal/own_shards.h
  fsdp/internal/parameter_memory.h
  fsdp/internal/shard_reducer.h
  fsdp/internal/sharded_module.h
  fsdp/internal/sharded_unit.h
  fsdp/internal/unit_gradients.h
  fsdp/internal/unit_plan.h
  fsdp/internal/virtual_step.h
  fsdp/no_sync.h
  fsdp/options.h
)
set(lockstep_fsdp_components base base_torch comm ddp)
set(lockstep_fsdp_third_party absl torch)

# lockstep::elastic
set(lockstep_elastic_sources
  elastic/internal/failure_budget.cc
  elastic/internal/fast_hash.cc
  elastic/internal/form_group.cc
  elastic/internal/generation.cc
  elastic/internal/healing.cc
  elastic/internal/healing_plan.cc
  elastic/internal/kept_model.cc
  elastic/internal/kept_state.cc
  elastic/internal/link_watcher.cc
  elastic/internal/parameter_check.cc
  elastic/internal/prefault.cc
  elastic/internal/rank_steps.cc
  elastic/internal/shard.cc
  elastic/internal/shard_plan.cc
  elastic/internal/shards.cc
  elastic/internal/transfer_plan.cc
  elastic/internal/vote.cc
  elastic/world.cc
  elastic/world_keep.cc
  elastic/world_shards.cc
)
set(lockstep_elastic_headers
  elastic/internal/kept_model.h
  elastic/internal/shard.h
  elastic/sharded_model.h
  elastic/sharded_optimizer.h
  elastic/world.h
  elastic/wrap.h
)
set(lockstep_elastic_components base base_torch base_logging launch comm checkpoint ddp fsdp)
set(lockstep_elastic_third_party absl torch)

# lockstep::fsdp_checkpoint
set(lockstep_fsdp_checkpoint_sources
  fsdp/full_state_dict.cc
  fsdp/internal/flat_boxes.cc
  fsdp/internal/full_optimizer_loader.cc
  fsdp/internal/optimizer_loader.cc
  fsdp/internal/sharded_parameters.cc
  fsdp/internal/state_gatherer.cc
  fsdp/internal/whole_optimizer.cc
  fsdp/memory_report.cc
  fsdp/state_dict.cc
)
set(lockstep_fsdp_checkpoint_headers
  fsdp/full_state_dict.h
  fsdp/internal/sharded_access.h
  fsdp/memory_report.h
  fsdp/state_dict.h
)
set(lockstep_fsdp_checkpoint_components base base_torch comm checkpoint checkpoint_sharded fsdp)
set(lockstep_fsdp_checkpoint_third_party absl torch)

# lockstep::data_text
set(lockstep_data_text_sources
  data/tokens/encode_text_files.cc
  data/tokens/internal/character_map.cc
  data/tokens/internal/file_pieces.cc
  data/tokens/load_tokenizer.cc
  data/tokens/open_texts.cc
  data/tokens/sentencepiece_tokenizer.cc
  data/tokens/token_file_writer.cc
)
set(lockstep_data_text_headers
  data/tokens/encode_text_files.h
  data/tokens/load_tokenizer.h
  data/tokens/open_texts.h
  data/tokens/sentencepiece_tokenizer.h
  data/tokens/token_file_writer.h
)
set(lockstep_data_text_components base base_torch checkpoint data data_sentencepiece)
set(lockstep_data_text_third_party absl torch)

# lockstep::tensorboard
set(lockstep_tensorboard_sources tensorboard/summary_writer.cc)
set(lockstep_tensorboard_headers tensorboard/summary_writer.h)
set(lockstep_tensorboard_components base)
set(lockstep_tensorboard_third_party absl)

# lockstep::models
set(lockstep_models_sources
  models/channels_last.cc
  models/image_classifier.cc
  models/recompute/internal/forward_state.cc
  models/recompute/internal/saved_tensor_hooks.cc
  models/recompute/recompute.cc
  models/registry.cc
  models/resnet.cc
)
set(lockstep_models_headers
  models/channels_last.h
  models/image_classifier.h
  models/recompute/recompute.h
  models/registry.h
  models/resnet.h
)
set(lockstep_models_components base base_torch)
set(lockstep_models_third_party absl torch)

# lockstep::models_exported
set(lockstep_models_exported_sources
  models/exported/archive.cc
  models/exported/compiler.cc
  models/exported/exported_module.cc
  models/exported/file.cc
  models/exported/graph.cc
  models/exported/graph_parser.cc
  models/exported/input_checks.cc
  models/exported/interpreter.cc
  models/exported/modes.cc
  models/exported/node_parser.cc
  models/exported/number_functions.cc
  models/exported/operands.cc
  models/exported/regions.cc
  models/exported/run.cc
  models/exported/structure.cc
)
set(lockstep_models_exported_headers models/exported/exported_module.h models/exported/file.h)
set(lockstep_models_exported_components base base_torch checkpoint)
set(lockstep_models_exported_third_party absl torch)

# lockstep::models_scripted
set(lockstep_models_scripted_sources models/scripted/file.cc models/scripted/script_module.cc)
set(lockstep_models_scripted_headers models/scripted/file.h models/scripted/script_module.h)
set(lockstep_models_scripted_components base base_torch checkpoint)
set(lockstep_models_scripted_third_party absl torch zlib)

# lockstep::models_transformer
set(lockstep_models_transformer_sources
  models/transformer/causal_lm.cc
  models/transformer/config.cc
  models/transformer/config_json.cc
  models/transformer/generation.cc
  models/transformer/internal/decoder.cc
  models/transformer/internal/gpt2.cc
  models/transformer/internal/llama.cc
  models/transformer/internal/rope.cc
  models/transformer/key_value_cache.cc
  models/transformer/matrix_flops.cc
  models/transformer/pretrained.cc
  models/transformer/text_generation.cc
)
set(lockstep_models_transformer_headers
  models/transformer/causal_lm.h
  models/transformer/config.h
  models/transformer/generation.h
  models/transformer/internal/decoder.h
  models/transformer/key_value_cache.h
  models/transformer/matrix_flops.h
  models/transformer/pretrained.h
  models/transformer/text_generation.h
)
set(lockstep_models_transformer_components base base_torch checkpoint data models)
set(lockstep_models_transformer_third_party absl nlohmann_json torch)

set(lockstep_all_tests
  comm_environment_environment_test
  launch_spawn_test
  sampler_distributed_batch_sampler_test
  checkpoint_checkpoint_test
  comm_backend_test
  comm_shm_communicator_test
  ddp_distributed_data_parallel_test
)

# //comm/environment:environment_test
set(lockstep_test_comm_environment_environment_test_program environment_test)
set(lockstep_test_comm_environment_environment_test_sources
  comm/environment/rank_environment_test.cc
  comm/environment/rank_identity_test.cc
  comm/testing/process.cc
)
set(lockstep_test_comm_environment_environment_test_components base comm)
set(lockstep_test_comm_environment_environment_test_third_party absl)

# //launch:spawn_test
set(lockstep_test_launch_spawn_test_program spawn_test)
set(lockstep_test_launch_spawn_test_sources
  launch/spawn_test.cc
  launch/testing/fake_sysfs.cc
  launch/testing/processes.cc
)
set(lockstep_test_launch_spawn_test_components base launch)
set(lockstep_test_launch_spawn_test_third_party absl)

# //sampler:distributed_batch_sampler_test
set(lockstep_test_sampler_distributed_batch_sampler_test_program distributed_batch_sampler_test)
set(lockstep_test_sampler_distributed_batch_sampler_test_sources
  sampler/continuation_test.cc
  sampler/distributed_batch_sampler_test.cc
  sampler/sampler_state_value_test.cc
)
set(lockstep_test_sampler_distributed_batch_sampler_test_components base base_torch sampler sampler_checkpoint)
set(lockstep_test_sampler_distributed_batch_sampler_test_third_party absl torch)

# //checkpoint:checkpoint_test
set(lockstep_test_checkpoint_checkpoint_test_program checkpoint_test)
set(lockstep_test_checkpoint_checkpoint_test_sources
  checkpoint/checkpoint_test.cc
  checkpoint/golden_objects_test.cc
  checkpoint/golden_test.cc
  checkpoint/random_views_test.cc
  checkpoint/rng_state_test.cc
  checkpoint/state_dict_test.cc
  checkpoint/value_test.cc
)
set(lockstep_test_checkpoint_checkpoint_test_components base base_torch checkpoint)
set(lockstep_test_checkpoint_checkpoint_test_third_party absl torch)

# //comm:backend_test
set(lockstep_test_comm_backend_test_program backend_test)
set(lockstep_test_comm_backend_test_sources comm/backend_test.cc)
set(lockstep_test_comm_backend_test_components base base_torch comm)
set(lockstep_test_comm_backend_test_third_party absl torch)

# //comm/shm:communicator_test
set(lockstep_test_comm_shm_communicator_test_program communicator_test)
set(lockstep_test_comm_shm_communicator_test_sources
  comm/shm/communicator_test.cc
  comm/shm/heap_test.cc
  comm/shm/internal/mail_test.cc
  comm/shm/reduce_test.cc
  comm/shm/testing/local_ranks.cc
  comm/shm/testing/random_calls.cc
)
set(lockstep_test_comm_shm_communicator_test_components base comm_shm)
set(lockstep_test_comm_shm_communicator_test_third_party absl)

# //ddp:distributed_data_parallel_test
set(lockstep_test_ddp_distributed_data_parallel_test_program distributed_data_parallel_test)
set(lockstep_test_ddp_distributed_data_parallel_test_sources
  base/testing/user_namespace.cc
  comm/testing/init_ranks.cc
  comm/testing/network_hosts.cc
  comm/testing/run_ranks.cc
  comm/testing/thread_backend.cc
  comm/testing/thread_call.cc
  comm/testing/thread_hub.cc
  ddp/distributed_data_parallel_test.cc
  ddp/testing/headed_nets.cc
  ddp/testing/training.cc
)
set(lockstep_test_ddp_distributed_data_parallel_test_components base base_torch comm comm_shm ddp)
set(lockstep_test_ddp_distributed_data_parallel_test_third_party absl torch)
