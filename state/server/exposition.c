#include "state/server/exposition.h"

#include <arpa/inet.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "state/base/bytes/text.h"

bool exposition_is_open(const char *accept)
{
    return accept && strstr(accept, "application/openmetrics-text");
}

bool exposition_host_is_local(const char *host)
{
    return !host || strcmp(host, "localhost") == 0 || strncmp(host, "localhost:", 10) == 0 ||
           strcmp(host, "127.0.0.1") == 0 || strncmp(host, "127.0.0.1:", 10) == 0;
}

const char *exposition_type(bool open)
{
    return open ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
                : "text/plain; version=0.0.4; charset=utf-8";
}

int exposition_listen(uint16_t port, int *ret_fd)
{
    const struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const int yes = 1;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), error = 0;

    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)) ||
        bind(fd, (const struct sockaddr *)&address, sizeof(address)) || listen(fd, SOMAXCONN))
        error = -errno;
    if (error && fd >= 0)
        close(fd);
    else if (!error)
        *ret_fd = fd;
    return error;
}

int exposition_init(struct exposition *ret, bool open)
{
    *ret = (struct exposition){.open = open};
    ret->to = open_memstream(&ret->text, &ret->size);
    return ret->to ? 0 : -ENOMEM;
}

char *exposition_finish(struct exposition *exposition)
{
    if (exposition->open)
        (void)fputs("# EOF\n", exposition->to);
    bool failed = ferror(exposition->to);
    if (fclose(exposition->to) || failed) {
        free(exposition->text);
        return NULL;
    }
    return exposition->text;
}

const char *exposition_suffix(const struct metric *metric)
{
    return metric->type == METRIC_COUNTER ? "_total" : "";
}

/** "# TYPE" and so on. OpenMetrics names a counter without "_total", the text format with it. */
void exposition_begin(struct exposition *exposition, const struct metric *metric)
{
    static const char *const types[] = {"gauge", "counter", "histogram"};
    const char *suffix = exposition->open ? "" : exposition_suffix(metric);
    FILE *to = exposition->to;

    exposition->metric = metric;
    (void)fprintf(to, "# HELP %s%s %s\n", metric->name, suffix, metric->help);
    (void)fprintf(to, "# TYPE %s%s %s\n", metric->name, suffix, types[metric->type]);
    if (exposition->open && metric->unit[0])
        (void)fprintf(to, "# UNIT %s %s\n", metric->name, metric->unit);
}

static void exposition_label(FILE *to, bool first, const char *name, const char *value)
{
    char safe[256];

    text_make_safe(safe, sizeof(safe), value, strlen(value));
    (void)fprintf(to, "%s%s=\"", first ? "{" : ",", name);
    for (const char *at = safe; *at; at++) {
        if (*at == '\\' || *at == '"')
            (void)fputc('\\', to);
        (void)fputc(*at, to);
    }
    (void)fputc('"', to);
}

void exposition_put(const struct exposition *exposition, const char *suffix,
                    const struct label labels[3], double value)
{
    bool any = false;

    if (isnan(value))
        return;
    (void)fprintf(exposition->to, "%s%s", exposition->metric->name, suffix);
    for (unsigned i = 0; labels && i < 3; i++) {
        if (!labels[i].name)
            continue;
        exposition_label(exposition->to, !any, labels[i].name, labels[i].value);
        any = true;
    }
    (void)fprintf(exposition->to, "%s %.15g\n", any ? "}" : "", value);
}

void exposition_put_one(const struct exposition *exposition, double value)
{
    exposition_put(exposition, exposition_suffix(exposition->metric), NULL, value);
}

void exposition_put_labelled(const struct exposition *exposition, const char *label,
                             const char *value, double number)
{
    exposition_put(exposition, exposition_suffix(exposition->metric),
                   (struct label[3]){{label, value}}, number);
}
