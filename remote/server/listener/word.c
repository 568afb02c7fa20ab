#include "remote/server/listener/word.h"

#include <errno.h>
#include <poll.h>

#include "remote/server/listener/channel.h"

const char *const endings[ENDINGS] = {
    "ended by the operator",
    "its certificate was revoked",
    "its certificate has expired",
};

void word_say_with(int channel, const struct word *word, int passed)
{
    while (channel_send(channel, word, sizeof(*word), passed) == -EAGAIN) {
        struct pollfd room = {.fd = channel, .events = POLLOUT};
        (void)poll(&room, 1, -1);
    }
}

void word_say(int channel, const struct word *word)
{
    word_say_with(channel, word, -1);
}
