"""`python -m packer`: the same as the command `packer`."""

if __name__ == "__main__":
    from packer_cli.main import main

    main()
