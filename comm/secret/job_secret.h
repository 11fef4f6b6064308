// The job's secret, which base/crypto reads: the launcher uses it too.

#ifndef LOCKSTEP_COMM_SECRET_JOB_SECRET_H_
#define LOCKSTEP_COMM_SECRET_JOB_SECRET_H_

#include "lockstep/base/crypto/job_secret.h"  // IWYU pragma: export

namespace lockstep::comm {

using crypto::IsSealed;
using crypto::JobSecret;
using crypto::kJobSecretFileVariable;
using crypto::kJobSecretVariable;
using crypto::ReadJobSecret;

}  // namespace lockstep::comm

#endif  // LOCKSTEP_COMM_SECRET_JOB_SECRET_H_
