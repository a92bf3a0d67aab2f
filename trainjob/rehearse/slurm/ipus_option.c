/* sbatch --ipus=N, as where Slurm has Graphcore's plugin: the option is taken, and nothing is done by it.
   These few declarations are slurm/spank.h's, which is not installed with Slurm. */
struct spank_option {
    char *name, *arginfo, *usage;
    int has_arg, val;
    int (*callback)(int, const char *, int);
};
extern int spank_option_register(void *spank, struct spank_option *option);

const char plugin_name[] = "ipus";
const char plugin_type[] = "spank";
const unsigned int plugin_version = SLURM_VERSION;
const unsigned int spank_plugin_version = 1;

static int taken(int value, const char *argument, int remote)
{
    (void)value, (void)argument, (void)remote;
    return 0;
}

static struct spank_option ipus = {"ipus", "N", "IPUs of the job", 1, 0, taken};

int slurm_spank_init(void *spank, int argc, char **argv)
{
    (void)argc, (void)argv;
    return spank_option_register(spank, &ipus);
}
