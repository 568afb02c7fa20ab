#ifndef RESEAT_TESTS_REMOTE_GREETER_H
#define RESEAT_TESTS_REMOTE_GREETER_H

#include <stdbool.h>

/** Greet one client at the listening Unix socket @fd as a server of another version does, and exit.
 *  @welcomes: it does not refuse, though. */
_Noreturn void greeter_serve(int fd, bool welcomes);

#endif
