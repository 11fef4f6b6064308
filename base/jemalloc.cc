// See the comment on this target in BUILD.
extern "C" {
// jemalloc reads this when it starts. MALLOC_CONF in the environment is read later and takes precedence. By default
// jemalloc returns blocks of more than 8 MiB to the system as soon as they are freed. These are most of the memory of a
// training step.
const char* malloc_conf = "dirty_decay_ms:-1";
}
