/* SPDX-License-Identifier: MIT */
/* store_open.c - see store_open.h.
 *
 * HOW   The authority runs on the loop of the program: no thread is started,
 *       and the first answer needs a single step of the store. So the program
 *       must not block the loop for as long as a lease.
 */
#include "store_open.h"
#include "leftovers.h"
#include "say.h"
#include "units.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { CLOSE_MS = 1000, LEASE_MS = 10000, REQUEST_MS = 1000 };
enum { MOST_OF_REDIS = 256 << 20 }; /* bytes; a server accepts 512 MiB */

#define MEMORY "memory:"

/* Takes a line of a config file: the option's name, and the value in `o`. */
typedef void (*line_fn)(void *user, const char *name, const struct options *o);
struct config {
    const struct verb_def *verb;
    line_fn take;
    void *user;
};
struct config_sink {
    store_option_fn take;
    void *user;
};

static void config_read_files(const struct config *c);
static bool config_read_file(const struct config *c, const char *path);
static void config_check_owner(const struct config *c, const char *path,
                               int fd);
static bool config_is_unreachable(const char *path);
static void config_read_line(const struct config *c, char *line,
                             const char *path, unsigned number);
static void config_take_store(void *opts, const char *name,
                              const struct options *o);
static void config_take_other(void *config_sink, const char *name,
                              const struct options *o);
static int store_option_id(const char *name);
static const struct option_def *find_verb_option(const struct verb_def *verb,
                                                 const char *name);
static bool known_to_any_verb(const char *name);
static char *user_config_path(void);
static void store_check_value(const struct options *o, const char *sentence);
static uint32_t read_store_down(const struct options *o);
static void refuse_password(const struct options *o);
static bool address_has_password(const char *url);
static bool results_have_password(const char *value);
static void add_server_address(struct text *t, const char *url);
static bool text_is_hosts(const char *at);
static bool address_is_path(const char *url);
static const char *default_store_folder(void);
static void warn_of_leftover(const char *folder, long pid, void *unused);
static vow_future *store_open_address(vow_loop *loop, const char *url,
                                      const struct store_opts *s);
static void check_store_mode(const struct store_opts *s,
                             const vow_store *store);
static void on_store_damage(const char *moved_to, void *unused);
static void on_close_timeout(void *future);

/* ---- settings ------------------------------------------------------------ */

struct store_opts store_opts_of(const struct verb_def *verb)
{
    struct store_opts s = {.verb = verb, .busy_code = EXIT_BUSY};
    const char *url = getenv("VOW_STORE");
    config_read_files(
        &(struct config){.verb = verb, .take = config_take_store, .user = &s});
    if (url != NULL && url[0] != '\0')
        s.url = url;
    return s;
}

void store_config(const struct verb_def *verb, store_option_fn take, void *user)
{
    struct config_sink t = {.take = take, .user = user};
    config_read_files(
        &(struct config){.verb = verb, .take = config_take_other, .user = &t});
}

/* Reads both config files. A missing file is looked for only once. */
static void config_read_files(const struct config *c)
{
    static bool none, none_own;
    char *own = none_own ? NULL : user_config_path();
    none = none || !config_read_file(c, "/etc/vow.conf");
    none_own = own == NULL || !config_read_file(c, own);
    free(own);
}

static char *user_config_path(void)
{
    const char *config = getenv("XDG_CONFIG_HOME");
    const char *home = getenv("HOME");
    struct text path = {0};
    if (config != NULL &&
        config[0] == '/') /* the XDG rules: ignore relative paths */
        text_addf(&path, "%s/vow/config", config);
    else if (home != NULL && home[0] == '/')
        text_addf(&path, "%s/.config/vow/config", home);
    return path.at;
}

/* Returns false if there is no file. */
static bool config_read_file(const struct config *c, const char *path)
{
    char *line = NULL;
    size_t room = 0;
    ssize_t n;
    FILE *f = fopen(path, "re");
    if (f == NULL && errno != ENOENT && errno != ENOTDIR &&
        !config_is_unreachable(path))
        die(c->verb->usage_code, "vow %s: %s: %m", c->verb->name, path);
    if (f != NULL)
        config_check_owner(c, path, fileno(f));
    for (unsigned i = 1; f != NULL && (n = getline(&line, &room, f)) > 0; i++) {
        while (n > 0 && isspace((unsigned char)line[n - 1]))
            line[--n] = '\0';
        config_read_line(c, line, path, i);
    }
    if (f != NULL)
        (void)fclose(f);
    free(line);
    return f != NULL;
}

/* Exits if another user can write the file: options such as --shell and --store
 * decide which program runs. With sudo, HOME may belong to another user. */
static void config_check_owner(const struct config *c, const char *path, int fd)
{
    struct stat st;
    if (fstat(fd, &st) != 0)
        die(c->verb->usage_code, "vow %s: %s: %m", c->verb->name, path);
    if (st.st_uid != 0 && st.st_uid != geteuid())
        die(c->verb->usage_code,
            "vow %s: %s belongs to user %ld, who would decide what you run: "
            "set HOME to your own home (sudo -H), or chown it",
            c->verb->name, path, (long)st.st_uid);
    if (S_ISREG(st.st_mode) && (st.st_mode & S_IWOTH) != 0)
        die(c->verb->usage_code,
            "vow %s: %s can be written to by everybody: chmod o-w it",
            c->verb->name, path);
}

/* Returns whether the file is in a folder that this process may not enter, such
 * as the home of the user before su. */
static bool config_is_unreachable(const char *path)
{
    struct stat unused;
    int why = errno;
    bool out = why == EACCES && stat(path, &unused) < 0 && errno == EACCES;
    errno = why; /* for %m */
    return out;
}

/* Reads a line: --name=value, or name value. */
static void config_read_line(const struct config *c, char *line,
                             const char *path, unsigned number)
{
    struct text spelled = {0};
    char *name = line + strspn(line, " \t");
    if (name[0] == '\0' || name[0] == '#')
        return;
    name += strncmp(name, "--", 2) == 0 ? 2 : 0;
    size_t n = strcspn(name, " \t=");
    char *value = name + n + strspn(name + n, " \t=");
    name[n] = '\0';
    text_addf(&spelled, "--%s (%s:%u)", name, path, number);
    struct options o = {.verb = c->verb, .spelled = spelled.at};
    if (value[0] != '\0')
        o.value = mem_copy(value, strlen(value)); /* never freed */
    if (!known_to_any_verb(name)) { /* may be an address with a password */
        const char *letters = "abcdefghijklmnopqrstuvwxyz-";
        bool plain = name[strspn(name, letters)] == '\0';
        die(c->verb->usage_code, "vow %s: unknown option %s%s (%s:%u)",
            c->verb->name, plain ? "--" : "on this line", plain ? name : "",
            path, number);
    }
    c->take(c->user, name, &o);
    text_free(&spelled);
}

static void config_take_store(void *opts, const char *name,
                              const struct options *o)
{
    struct store_opts *s = opts;
    int id = store_option_id(name);
    if (id != 0 && o->value == NULL)
        options_refuse(o, "a value is missing");
    if (id == ID_STORE) /* may contain a password, so no refuse_password() */
        s->url = o->value;
    else if (id != 0)
        (void)store_option(s, id, o);
}

static void config_take_other(void *config_sink, const char *name,
                              const struct options *o)
{
    const struct config_sink *t = config_sink;
    const struct option_def *def = find_verb_option(o->verb, name);
    if (def == NULL || store_option_id(name) != 0)
        return;
    if (def->id ==
        ID_RESULTS_IN) /* in a file, --results is the folder of vow map */
        return;
    bool optional = def->value != NULL && def->value[0] == '[';
    if ((def->value == NULL) != (o->value == NULL) && !optional)
        options_refuse(o, def->value == NULL ? "it takes no value"
                                             : "a value is missing");
    t->take(t->user, def->id, o);
}

static int store_option_id(const char *name)
{
    static const struct {
        const char *name;
        int id;
    } all[] = {{"store", ID_STORE},
               {"if-store-down", ID_STORE_DOWN},
               {"lease", ID_LEASE},
               {"pulse", ID_PULSE}};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        if (strcmp(name, all[i].name) == 0)
            return all[i].id;
    return 0;
}

static const struct option_def *find_verb_option(const struct verb_def *verb,
                                                 const char *name)
{
    for (const struct option_def *d = verb->options; d != NULL && d->id != 0;
         d++)
        if (d->name != NULL && strcmp(d->name, name) == 0)
            return d;
    return NULL;
}

/* Returns whether any verb has the option: the files have options of all
 * verbs. */
static bool known_to_any_verb(const char *name)
{
    bool known = store_option_id(name) != 0;
    for (size_t i = 0; verbs[i] != NULL && !known; i++)
        known = find_verb_option(verbs[i], name) != NULL;
    return known;
}

bool store_option(struct store_opts *s, int id, const struct options *o)
{
    uint64_t n;
    switch (id) {
    case ID_STORE:
        refuse_password(o);
        s->url = o->value;
        break;
    case ID_RESULTS_IN:
        refuse_password(o);
        if (strncmp(o->value, MEMORY, strlen(MEMORY)) == 0)
            options_refuse(o, "memory: is private to one process: use a "
                              "folder, or redis://HOST");
        s->results = o->value;
        break;
    case ID_STORE_DOWN:
        s->down = read_store_down(o);
        break;
    case ID_LEASE:
        store_check_value(o, units_duration(o->value, &s->lease_ms));
        if (s->lease_ms < 100)
            options_refuse(o, "a lease is 100ms or longer");
        break;
    case ID_PULSE:
        store_check_value(o, units_duration(o->value, &s->pulse_ms));
        if (s->pulse_ms < 10)
            options_refuse(o, "a pulse is 10ms or longer");
        break;
    case ID_NO_WAIT:
        s->no_wait = true;
        break;
    case ID_WAIT:
        s->waits = true;
        store_check_value(o, units_duration(o->value, &s->wait_ms));
        break;
    case ID_BUSY_CODE:
        store_check_value(o, units_count(o->value, &n));
        if (n > 255)
            options_refuse(o, "an exit code is 0 to 255");
        s->busy_code = (int)n;
        break;
    default:
        return false;
    }
    return true;
}

static void store_check_value(const struct options *o, const char *sentence)
{
    if (sentence != NULL)
        options_refuse(o, sentence);
}

static void refuse_password(const struct options *o)
{
    if (address_has_password(o->value))
        die(o->verb->usage_code,
            "vow %s: %s: everybody sees a password in the arguments of a "
            "command: put it into a file, and give that as "
            "?password-file=FILE, or into VOW_STORE_PASSWORD",
            o->verb->name, o->spelled);
}

static uint32_t read_store_down(const struct options *o)
{
    if (strcmp(o->value, "run") == 0)
        return VOW_DOWN_RUN;
    if (strcmp(o->value, "wait") == 0)
        return VOW_DOWN_WAIT;
    if (strcmp(o->value, "fail") == 0)
        return VOW_DOWN_FAIL;
    options_refuse(o, "use run, wait or fail");
}

/* ---- opening ------------------------------------------------------------- */

char *store_address(const struct store_opts *s)
{
    struct text t = {0};
    if (s->url != NULL)
        text_add_str(&t, s->url);
    else
        text_addf(&t, "file:%s", default_store_folder());
    return t.at;
}

/* Returns the same folder for every process of the user, independent of the
 * environment. */
static const char *default_store_folder(void)
{
#ifdef VOW_HAVE_SQLITE
    static char folder[PATH_MAX];
    int rc = folder[0] != '\0'
                 ? 0
                 : vow_store_sqlite_default_folder(folder, sizeof(folder));
    if (rc == VOW_EBUSY)
        die(EXIT_BROKEN, "no folder for the store: in /var/tmp others have "
                         "taken the names vow-UID; give --store file:DIR");
    if (rc < 0)
        die(EXIT_BROKEN,
            "no folder for the store: the passwd entry of user %lu cannot be "
            "read; give --store file:DIR",
            (unsigned long)geteuid());
    return folder;
#else
    return "vow";
#endif
}

bool store_has_leases(const struct store_opts *s)
{
    return s->url != NULL && strncmp(s->url, "etcd", 4) == 0;
}

/* Leaves out the password and the options: an option may be a password, too. */
char *store_shown(const struct store_opts *s)
{
    char *url = store_address(s);
    struct text t = {0};
    if (address_is_path(url))
        text_add(&t, url,
                 strncmp(url, "file:", 5) == 0 ? strlen(url)
                                               : strcspn(url, "?"));
    else
        add_server_address(&t, url);
    free(url);
    return t.at;
}

/* Adds the scheme, the user and the hosts. A malformed address may have a
 * password in the wrong place: only the scheme is shown. */
static void add_server_address(struct text *t, const char *url)
{
    size_t scheme = strspn(url, "abcdefghijklmnopqrstuvwxyz-");
    if (strpbrk(url, ":@") == NULL) {
        text_add(t, url, strcspn(url, "?"));
        return;
    }
    if (strncmp(url + scheme, "://", 3) != 0) {
        text_add(t, url, url[scheme] == ':' ? scheme + 1 : 0);
        text_add_str(t, "...");
        return;
    }
    const char *user = url + scheme + 3;
    const char *at = strrchr(user, '@');
    const char *hosts = at == NULL ? user : at + 1;
    size_t n = strcspn(hosts, "?");
    text_add(t, url, scheme + 3);
    if (at != NULL && user[0] != ':' && user != at) {
        text_add(t, user, strcspn(user, ":@"));
        text_add(t, "@", 1);
    }
    if (text_is_hosts(hosts))
        text_add(t, hosts, n);
    else
        text_add_str(t, "...");
}

/* Returns whether the text is HOST[:PORT],... up to a path or the options. */
static bool text_is_hosts(const char *at)
{
    while (strchr("/?", *at) == NULL) { /* true also for the NUL at the end */
        size_t port = *at == ':' ? strspn(at + 1, "0123456789") : 0;
        size_t v6 = *at == '[' ? strcspn(at, "]") : 0;
        if (!isalnum((unsigned char)*at) && strchr(".-_,%", *at) == NULL &&
            (port == 0 || strchr(",/?", at[port + 1]) == NULL) &&
            (v6 == 0 || at[v6] != ']'))
            return false;
        at += 1 + port + v6;
    }
    return true;
}

/* Returns whether the address is a path, in which @ is a plain character.
 * unix://HOST is no path. */
static bool address_is_path(const char *url)
{
    if (strncmp(url, "unix:/", 6) == 0)
        return url[6] != '/' || url[7] == '/';
    return strncmp(url, "file:", 5) == 0 || url[0] == '/' || url[0] == '.';
}

/* A password ends at the last @, even if the password has an unescaped @. The
 * option results= has an address of its own. */
static bool address_has_password(const char *url)
{
    const char *options = strchr(url, '?');
    const char *at = address_is_path(url) ? NULL : strrchr(url, '@');
    const char *slashes = strstr(url, "://");
    const char *colon = strchr(slashes == NULL ? url : slashes + 3, ':');
    if (strncmp(url, "file:", 5) == 0)
        return false;
    if (at != NULL && colon != NULL && colon + 1 < at)
        return true;
    for (; options != NULL; options = strchr(options + 1, '&')) {
        if (strncmp(options + 1, "password=", 9) == 0)
            return true;
        if (strncmp(options + 1, "results=", 8) == 0 &&
            results_have_password(options + 9))
            return true;
    }
    return false;
}

static bool results_have_password(const char *value)
{
    struct text t = {0};
    size_t n = strcspn(value, "&");
    for (size_t i = 0; i < n; i++) {
        char hex[3] = {0};
        char sign = value[i];
        if (sign == '%' && i + 2 < n) {
            memcpy(hex, value + i + 1, 2);
            sign = (char)strtoul(hex, NULL, 16);
            i += 2;
        }
        text_add(&t, &sign, 1);
    }
    bool has = t.at != NULL && address_has_password(t.at);
    text_free(&t);
    return has;
}

vow_authority *store_open(vow_loop *loop, const struct store_opts *s,
                          vow_error **ret_failed)
{
    char *url = store_address(s);
    uint64_t lease_ms = s->lease_ms > 0 ? s->lease_ms : LEASE_MS;
    vow_authority_opts o = {.size = sizeof(o),
                            .flags = VOW_AUTHORITY_HERE,
                            .lease_ms = s->lease_ms,
                            .pulse_ms = s->pulse_ms,
                            .on_event = s->on_event,
                            .on_event_user = s->on_event_user};
    if (s->pulse_ms >= lease_ms)
        die(s->verb->usage_code,
            "vow %s: --pulse must be shorter than --lease, best a third of it",
            s->verb->name);
    if (!s->alone && strncmp(url, MEMORY, strlen(MEMORY)) == 0)
        die(EXIT_BROKEN,
            "vow %s: memory: is private to one process, commands cannot share "
            "it; use file:DIR, redis://HOST or etcd://HOST",
            s->verb->name);
    if (s->results != NULL && strncmp(url, "etcd", 4) != 0)
        die(s->verb->usage_code,
            "vow %s: --results requires --store etcd://HOST: other stores "
            "keep long results themselves",
            s->verb->name);
    if (s->url == NULL)
        leftovers_find(default_store_folder(), warn_of_leftover, NULL);
    VOW_AUTO(vow_future) f = store_open_address(loop, url, s);
    int rc = vow_loop_run_until(loop, f);
    if (rc == 0) {
        o.store = vow_as_ptr(vow_get(f));
        check_store_mode(s, o.store);
        vow_future_unref(f);
        f = vow_authority_open(loop, url, &o);
        rc = vow_loop_run_until(loop, f);
    }
    free(url);
    if (rc == 0)
        return vow_authority_ref(vow_as_ptr(vow_get(f)));
    vow_error *e = vow_error_of(f);
    *ret_failed =
        e != NULL ? vow_error_ref(e) : vow_error_new(loop, rc, "no answer");
    return NULL;
}

static void warn_of_leftover(const char *folder, long pid, void *unused)
{
    (void)unused;
    if (pid != 0)
        say("process %ld uses the store in %s, perhaps with an older vow: its "
            "locks and names are not seen in %s. Wait until it has ended, or "
            "use --store file:%s",
            pid, folder, default_store_folder(), folder);
}

/* Opens the store. A folder: damage is reported; a request waits for a third of
 * the lease, at least a second, so hundreds of processes can start at the same
 * time, and the pulse is still in time. Redis: results may have MOST_OF_REDIS
 * bytes. */
static vow_future *store_open_address(vow_loop *loop, const char *url,
                                      const struct store_opts *s)
{
#ifdef VOW_HAVE_SQLITE
    uint64_t third = (s->lease_ms > 0 ? s->lease_ms : LEASE_MS) / 3;
    if (strncmp(url, "file:", 5) == 0 && url[5] != '\0')
        return vow_store_sqlite_open(
            loop, url + 5,
            VOW_SQLITE_OPTS(.on_damage = on_store_damage,
                            .request_ms =
                                third > REQUEST_MS ? third : REQUEST_MS));
#endif
#ifdef VOW_HAVE_REDIS
    if (strncmp(url, "redis", 5) == 0 || strncmp(url, "unix:", 5) == 0)
        return vow_store_redis_open(loop, url,
                                    VOW_REDIS_OPTS(.value_max = MOST_OF_REDIS));
#endif
#ifdef VOW_HAVE_ETCD
    if (strncmp(url, "etcd", 4) == 0)
        return vow_store_etcd_open(loop, url,
                                   VOW_ETCD_OPTS(.results = s->results));
#endif
    (void)s;
    (void)on_store_damage;
    return vow_store_open(loop, url);
}

/* Exits if the store does not support the mode. */
static void check_store_mode(const struct store_opts *s, const vow_store *store)
{
    if ((store->ops->modes & 1u << s->mode) != 0)
        return;
    die(EXIT_BROKEN,
        "vow %s: the store %s does not support %s, because it may lose "
        "records; use file: or etcd:",
        s->verb->name, store_shown(s),
        s->mode == VOW_ONCE ? "--once" : "--fenced");
}

static void on_store_damage(const char *moved_to, void *unused)
{
    (void)unused;
    say("the store was damaged: a new store was created, the old file is now "
        "%s",
        moved_to);
}

vow_authority *store_open_or_die(vow_loop *loop, const struct store_opts *s)
{
    vow_error *failed = NULL;
    vow_authority *a = store_open(loop, s, &failed);
    if (a == NULL)
        die(EXIT_BROKEN, "vow %s: the store %s cannot be used: %s",
            s->verb->name, store_shown(s), vow_error_message(failed));
    return a;
}

void store_close(vow_loop *loop, vow_authority *a)
{
    vow_call bound = {{0}};
    if (a == NULL)
        return;
    VOW_AUTO(vow_future) f = vow_authority_close(a);
    vow_call_at(&bound, loop, vow_loop_due_ns(loop, CLOSE_MS), on_close_timeout,
                f);
    (void)vow_loop_run_until(loop, f);
    (void)vow_call_stop(&bound);
    vow_authority_unref(a);
}

static void on_close_timeout(void *future)
{
    (void)vow_cancel(future, NULL);
}

bool store_has_none(int code)
{
    return code == VOW_ENOENT || code == VOW_ECANCELED || code == VOW_E2BIG;
}

/* ---- names --------------------------------------------------------------- */

vow_name store_name_of(const char *word)
{
    const vow_field fields[] = {vow_field_text("name"), vow_field_text(word)};
    return vow_name_make(NULL, fields, 2);
}
