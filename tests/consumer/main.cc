/* SPDX-License-Identifier: MIT */
/* main.cc - the same from C++17, where options are filled by hand and a lambda
 * without captures is a handler; also with the header that includes <uv.h>. */
#include <cstdio>
#include <memory>
#include <vow.h>
#include <vow/uv.h>

struct unref {
    void operator()(vow_future *f) const
    {
        vow_future_unref(f);
    }
};
using future = std::unique_ptr<vow_future, unref>;

// Named work from C++: nothing is in doubt, and the authority says so.
static bool nothing_in_doubt(vow_loop *loop)
{
    future opened(vow_authority_open(loop, "memory:", nullptr));
    if (vow_loop_run_until(loop, opened.get()) != 0)
        return false;
    auto *a = static_cast<vow_authority *>(vow_as_ptr(vow_get(opened.get())));
    vow_name name = vow_name_of("payout:2026-11");
    future r(vow_authority_resolve(a, &name, 1, VOW_IT_FAILED, nullptr, 0));
    return vow_loop_run_until(loop, r.get()) == VOW_ENOENT;
}

int main()
{
    vow_loop_opts opts{};
    opts.size = sizeof opts;
    opts.flags = VOW_LOOP_VIRTUAL_TIME;
    vow_loop *loop = nullptr;
    if (vow_loop_new(&opts, &loop) < 0)
        return 1;

    int got = 0;
    {
        future wait(vow_delay(loop, 1000));
        auto answer = [](vow_value, void *) { return vow_ok(vow_int(42)); };
        future done(vow_then(wait.get(), answer, nullptr, nullptr));
        if (vow_loop_run_until(loop, done.get()) == 0)
            got = static_cast<int>(vow_as_int(vow_get(done.get())));
    }
    std::printf("vow %s from C++: %d\n", vow_version(), got);
    bool on_uv = uv_loop_alive(vow_loop_uv(loop)) >= 0;
    bool named = nothing_in_doubt(loop);
    vow_loop_close(loop);
    return got == 42 && on_uv && named ? 0 : 1;
}
