// See the comment on this target in BUILD.
extern "C" {
// jemalloc reads it when it starts; MALLOC_CONF in the environment comes after and wins. By default jemalloc returns
// what is larger than 8 MiB as soon as it is freed, which is most of what a step of training takes.
const char* malloc_conf = "dirty_decay_ms:-1";
}
