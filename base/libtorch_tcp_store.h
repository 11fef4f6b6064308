// The messages of LibTorch's TCPStore, c10d::detail::QueryType and others, whose header has moved. See also
// libtorch_version.h.

#ifndef LOCKSTEP_BASE_LIBTORCH_TCP_STORE_H_
#define LOCKSTEP_BASE_LIBTORCH_TCP_STORE_H_

#if __has_include(<torch/csrc/distributed/c10d/store/TCPStoreBackend.hpp>)  // LibTorch 2.15; not 2.11
#include <torch/csrc/distributed/c10d/store/TCPStoreBackend.hpp>
#else
#include <torch/csrc/distributed/c10d/TCPStoreBackend.hpp>
#endif

#endif  // LOCKSTEP_BASE_LIBTORCH_TCP_STORE_H_
