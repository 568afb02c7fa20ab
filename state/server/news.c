#include "state/server/news.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

#include "state/base/bytes/text.h"

_Static_assert(sizeof(struct server_news) <= PIPE_BUF, "news are written whole");

int server_news_write(struct server_news *news, int fd)
{
    ssize_t put;

    news->version = SERVER_NEWS_VERSION;
    do
        put = write(fd, news, sizeof(*news));
    while (put < 0 && errno == EINTR);
    return put == (ssize_t)sizeof(*news) ? 0 : put < 0 ? -errno : -EIO;
}

char *server_news_room(struct server_news_reader *reader, size_t *ret_size)
{
    *ret_size = sizeof(reader->news) - reader->got;
    return (char *)&reader->news + reader->got;
}

static void server_news_make_safe(char *text, size_t size)
{
    text[size - 1] = '\0';
    text_make_safe(text, size, text, strlen(text));
}

int server_news_came(struct server_news_reader *reader, size_t count)
{
    struct server_news *news = &reader->news;

    reader->got += count;
    /* Of another version they may be shorter. */
    if (reader->got >= sizeof(news->version) && news->version != SERVER_NEWS_VERSION)
        return -EPROTO;
    if (reader->got < sizeof(*news))
        return 0;
    reader->got = 0;
    server_news_make_safe(news->code, sizeof(news->code));
    server_news_make_safe(news->address, sizeof(news->address));
    server_news_make_safe(news->problem, sizeof(news->problem));
    news->listed = *(unsigned char *)&news->listed != 0;
    return 1;
}
