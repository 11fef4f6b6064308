// glog's LOG, CHECK and VLOG in a file that also includes LibTorch.
//
// c10 and glog both define these macros. This header includes c10's first, undefines the ones that clash, and then
// includes glog's, so other includes may come in any order. No other file in Lockstep includes glog.

#ifndef LOCKSTEP_BASE_LOGGING_H_
#define LOCKSTEP_BASE_LOGGING_H_

#include <c10/util/Logging.h>

#undef CHECK
#undef CHECK_EQ
#undef CHECK_GE
#undef CHECK_GT
#undef CHECK_LE
#undef CHECK_LT
#undef CHECK_NE
#undef CHECK_NOTNULL
#undef CHECK_OP
#undef CHECK_STREQ
#undef DCHECK
#undef DCHECK_EQ
#undef DCHECK_GE
#undef DCHECK_GT
#undef DCHECK_LE
#undef DCHECK_LT
#undef DCHECK_NE
#undef DCHECK_NOTNULL
#undef DLOG
#undef DLOG_IF
#undef LOG
#undef LOG_EVERY_N
#undef LOG_IF
#undef VLOG
#undef VLOG_IF
#undef VLOG_IS_ON

#include <glog/logging.h>  // IWYU pragma: export

#endif  // LOCKSTEP_BASE_LOGGING_H_
