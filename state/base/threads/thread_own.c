#include "state/base/threads/thread_own.h"

_Thread_local union thread_own the_thread;
