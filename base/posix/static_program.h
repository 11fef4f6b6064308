// Programs that have their own copy of the C library.

#ifndef LOCKSTEP_BASE_POSIX_STATIC_PROGRAM_H_
#define LOCKSTEP_BASE_POSIX_STATIC_PROGRAM_H_

namespace lockstep {

// Returns whether this program was linked with -static. Then it must not load shared libraries: each brings another C
// library into the process, and a call into it crashes. Libraries that load others must be told not to: glibc loads the
// modules of /etc/nsswitch.conf, and OpenSSL the ones that openssl.cnf names.
bool IsStaticProgram();

}  // namespace lockstep

#endif  // LOCKSTEP_BASE_POSIX_STATIC_PROGRAM_H_
