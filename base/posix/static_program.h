// Whether this program has its own copy of the C library.

#ifndef LOCKSTEP_BASE_POSIX_STATIC_PROGRAM_H_
#define LOCKSTEP_BASE_POSIX_STATIC_PROGRAM_H_

namespace lockstep {

// Returns whether this program was linked with -static. Then it must not load shared libraries: each brings another C
// library into the process, and a call into it crashes. A library may load some of its own accord, as glibc does for
// /etc/nsswitch.conf and OpenSSL for openssl.cnf: tell it not to.
bool IsStaticProgram();

}  // namespace lockstep

#endif  // LOCKSTEP_BASE_POSIX_STATIC_PROGRAM_H_
