// libjpeg's headers, after a header that they need and do not include.

#ifndef LOCKSTEP_DATA_INTERNAL_LIBJPEG_H_
#define LOCKSTEP_DATA_INTERNAL_LIBJPEG_H_

// clang-format off
#include <cstdio>
#include <jpeglib.h>
#include <jerror.h>
// clang-format on

#endif  // LOCKSTEP_DATA_INTERNAL_LIBJPEG_H_
