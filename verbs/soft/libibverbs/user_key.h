#ifndef RINGPIPE_VERBS_SOFT_LIBIBVERBS_USER_KEY_H_
#define RINGPIPE_VERBS_SOFT_LIBIBVERBS_USER_KEY_H_

#include <string>

namespace ringpipe::verbs::soft {

// What a user's processes share where RINGPIPE_SECRET is not set: 32 random
// bytes in `home`/.cache/ringpipe/key, which nobody else may read, made by the
// first process that asks. Empty where there is no such file and none can be
// made: names on this host are then those that anybody could take. Thread-safe,
// also between processes.
std::string UserKey(const std::string& home);

// The home of the effective user, as the user database has it: the same for all
// of the user's processes, whatever their environment. Empty: none.
std::string UserHome();

}  // namespace ringpipe::verbs::soft

#endif  // RINGPIPE_VERBS_SOFT_LIBIBVERBS_USER_KEY_H_
